// Package check holds the words that every check, every command and every
// report share: the five verdicts and the moment of a pass. It has no
// behaviour beyond them, so everybody may import it.
package check
