// Package state remembers: small text files that a person can read, edit and
// delete, written so that neither a kill nor a power cut leaves half of one,
// and the locks that keep two passes apart.
//
// What it promises:
//   - A file is either the old one or the new one, never a mixture: it is
//     written beside its name, synced, renamed, and the directory is synced.
//   - A file that cannot be understood is set aside under a new name, never
//     deleted and never over an older one; what to assume instead is the
//     caller's business.
//   - A directory that belongs to another user is refused, so that a run under
//     sudo takes no file away from the unit's own user.
//   - A [View] writes nothing at all.
//
// The format is one subject a line: columns separated by single blanks, then
// key=value. Lines that start with # are comments; the first one names the
// columns and says what deleting the file does.
package state
