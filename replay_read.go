package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/check/gpu"
)

// recording is what a file to replay holds: looks at cards, or passes over
// agents.
type recording struct {
	form   string // of the file, as a person calls it
	cards  []*cardTrack
	passes []agentsLook
	units  []string // of all passes, in the order first seen

	unread   int    // lines that say nothing
	firstBad string // the first of them, and why
}

// cardTrack is what was seen of one card, in the order recorded.
type cardTrack struct {
	subject string
	looks   []cardLook
}

type cardLook struct {
	now  check.Moment
	seen gpu.Seen
}

// agentsLook is one pass over the agents.
type agentsLook struct {
	now  check.Moment
	seen map[string]agents.Seen
}

// maxLooks is far more than anybody recorded: seven years of 2-minute passes.
const maxLooks = 2_000_000

// shortestReading is "1790546400 0 35.0" and its line's end.
const shortestReading = 18

// maxLine is the longest line of a recording: a capture may be one line.
const maxLine = maxCapture

// readRecording reads any of the forms; the content says which it is.
func (p *program) readRecording(path string) (*recording, error) {
	in, err := p.open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, withoutPath(err))
	}
	defer in.Close()
	size := int64(0)
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
	}
	r := &recordingReader{recording: &recording{}, byName: map[string]*cardTrack{}, room: int(min(size/shortestReading, maxLooks))}
	if err := r.readAll(in); err != nil {
		return nil, fmt.Errorf("%s: %w", path, withoutPath(err))
	}
	if len(r.cards) == 0 && len(r.passes) == 0 {
		if r.firstBad != "" {
			return nil, fmt.Errorf("%s:%s", path, r.firstBad)
		}
		return nil, fmt.Errorf("%s: no reading in it", path)
	}
	return r.recording, nil
}

// withoutPath is the error of a file that has been named already.
func withoutPath(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// recordingReader reads line by line; only what Decide needs is kept.
type recordingReader struct {
	*recording
	byName map[string]*cardTrack
	line   int
	looks  int
	room   int                     // for so many readings, if that is what they are
	take   func(text string) error // one line, in the form that was found

	capture strings.Builder // of a trace, so far
	at      float64         // its epoch
	last    float64         // the last epoch of readings or captures
	clock   string          // names the clock that they come from
	clocks  int             // how often it went backwards
}

func (r *recordingReader) readAll(in io.Reader) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		text, err := readLine(lines)
		if text != "" {
			if r.line++; r.line == 1 {
				text = strings.TrimPrefix(text, "\ufeff") // an editor's mark of UTF-8
			}
			if err := r.readLine(text); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			r.endCapture()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine reads a line with its end. Only the last may have none.
func readLine(in *bufio.Reader) (string, error) {
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		if err == nil && long == nil {
			return string(part), nil
		}
		long = append(long, part...)
		if len(long) > maxLine {
			return "", errors.New("a line of more than 4 MiB is no recording")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return string(long), err
		}
	}
}

func (r *recordingReader) readLine(text string) error {
	if epoch, ok := captureEpoch(text); ok && (r.take == nil || r.form == formCaptures) {
		r.endCapture()
		r.form, r.take, r.at = formCaptures, r.takeCapture, epoch
		return nil
	}
	if r.form != formCaptures {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			return nil
		}
	}
	if r.take == nil {
		r.take = r.formOf(text)
	}
	bad := errors.New("no reading (epoch busy junction), no history and no trace of captures (# epoch)")
	if r.take != nil {
		bad = r.take(text)
	}
	if bad != nil {
		r.unread++
		if r.firstBad == "" {
			r.firstBad = fmt.Sprintf("%d: %v", r.line, bad)
		}
	}
	if r.looks > maxLooks {
		return fmt.Errorf("more than %d readings", maxLooks)
	}
	return nil
}

const (
	formReadings = "readings"
	formCaptures = "a trace of captures"
	formGPU      = "a GPU's history"
	formAgents   = "agents' history"
)

// formOf tells the form from a line that is no comment.
func (r *recordingReader) formOf(text string) func(string) error {
	if p, line, err := parsePast(text); err == nil && p.subject != "" {
		if _, ok := line.Get("dispatch"); ok {
			r.form = formAgents
			return r.takeAgent
		}
		r.form = formGPU
		return r.takeCard
	}
	if _, _, err := parseReading(text); err == nil {
		r.form = formReadings
		return r.takeReading
	}
	return nil
}

func (r *recordingReader) takeReading(text string) error {
	epoch, reading, err := parseReading(text)
	if err != nil {
		return err
	}
	r.add(r.moment(epoch), gpu.Seen{Reading: reading})
	return nil
}

// parseReading reads "epoch busy junction", and perhaps the power behind it; a
// - (or anything else that is no number) is no reading.
func parseReading(text string) (epoch float64, r gpu.Reading, err error) {
	words := strings.Fields(text)
	if len(words) < 3 || len(words) > 4 {
		return 0, r, fmt.Errorf("%s; a reading is: epoch busy junction", count(len(words), "word"))
	}
	if epoch, err = strconv.ParseFloat(words[0], 64); err != nil || !(epoch >= 0 && epoch < 1e11) {
		return 0, r, fmt.Errorf("%q is no time in seconds since 1970", clipped(words[0]))
	}
	r.Card = noCard
	r.Busy = numberWithin(words[1], 0, 100)
	if r.Junction = numberWithin(words[2], 0, 150); r.Junction.Value == 0 || r.Junction.Value == 150 {
		r.Junction = gpu.Number{}
	}
	if len(words) > 3 {
		r.Power = numberWithin(words[3], 0, 5000)
	}
	return epoch, r, nil
}

func numberWithin(text string, least, most float64) gpu.Number {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= least && v <= most) {
		return gpu.Number{}
	}
	return gpu.Known(v)
}

func clipped(text string) string {
	if len(text) > 40 {
		return text[:40]
	}
	return text
}

// captureEpoch knows the line "# 1790546400" that begins a capture.
func captureEpoch(text string) (epoch float64, ok bool) {
	if !strings.HasPrefix(text, "# ") {
		return 0, false
	}
	words := strings.Fields(text[2:])
	if len(words) == 0 {
		return 0, false
	}
	epoch, err := strconv.ParseFloat(words[0], 64)
	return epoch, err == nil && epoch >= 1e8 && epoch < 1e11
}

func (r *recordingReader) takeCapture(text string) error {
	if r.capture.Len() < maxCapture {
		r.capture.WriteString(text)
	}
	return nil
}

// endCapture takes down what a capture shows. A card that it does not show has
// no reading in it.
func (r *recordingReader) endCapture() {
	if r.form != formCaptures {
		return
	}
	cards, why := gpu.Parse([]byte(r.capture.String()))
	r.capture.Reset()
	now := r.moment(r.at)
	shown := map[string]bool{}
	for _, c := range cards {
		r.add(now, gpu.Seen{Reading: c})
		shown[c.Card] = true
	}
	if why == "" {
		why = "not in the capture"
	}
	for _, track := range r.cards {
		if !shown[track.subject] {
			r.add(now, gpu.Seen{Reading: gpu.Reading{Card: track.subject, Why: why, HasJunction: true}})
		}
	}
}

func (r *recordingReader) takeCard(text string) error {
	one, err := parseGPUHistory(text)
	if err != nil {
		return err
	}
	r.add(one.now, one.seen)
	return nil
}

func (r *recordingReader) takeAgent(text string) error {
	one, err := parseAgentsHistory(text)
	if err != nil {
		return err
	}
	r.looks++
	last := len(r.passes) - 1
	if last < 0 || r.passes[last].now != one.now || hasUnit(r.passes[last], one.subject) {
		r.passes = append(r.passes, agentsLook{now: one.now, seen: map[string]agents.Seen{}})
		last++
	}
	r.passes[last].seen[one.subject] = one.seen
	if !slices.Contains(r.units, one.subject) {
		r.units = append(r.units, one.subject)
	}
	return nil
}

func hasUnit(l agentsLook, unit string) bool {
	_, ok := l.seen[unit]
	return ok
}

func (r *recordingReader) add(now check.Moment, seen gpu.Seen) {
	name := seen.Reading.Card
	track := r.byName[name]
	if track == nil {
		track = &cardTrack{subject: name}
		if r.form == formReadings {
			track.looks = make([]cardLook, 0, r.room)
		}
		r.byName[name] = track
		r.cards = append(r.cards, track)
	}
	track.looks = append(track.looks, cardLook{now, seen})
	r.looks++
}

// moment takes an epoch for both clocks. When it goes backwards, somebody has
// set the clock: then no time is known to have passed, as after a reboot.
func (r *recordingReader) moment(epoch float64) check.Moment {
	if epoch < r.last || r.clock == "" {
		r.clocks++
		r.clock = "clock " + strconv.Itoa(r.clocks)
	}
	r.last = epoch
	whole, part := math.Modf(epoch)
	return check.Moment{Wall: time.Unix(int64(whole), int64(part*1e9)), Boot: epoch, BootID: r.clock}
}
