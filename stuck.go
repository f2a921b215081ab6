package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"tickdog/units"
)

// stuck are the children of passes that not even KILL has ended: they sit in
// the kernel. While one lives, no second one like it is started.
type stuck struct {
	mu     sync.Mutex
	loaded bool
	known  []units.Stuck
}

// run runs a bounded command of this pass.
func (s *pass) run(ctx context.Context, c units.Command) units.Result {
	key := c.Key
	if old, ok := s.stillStuck(key); ok {
		return units.Result{Argv: c.Argv, Key: key, Code: -1,
			Err: fmt.Errorf("process %d, left behind by an earlier pass, still hangs", old.PID)}
	}
	r := units.Run(ctx, c)
	if r.Left {
		s.leaveBehind(r.Stuck(s.now))
	}
	return r
}

func (s *pass) stillStuck(key string) (units.Stuck, bool) {
	s.stuck.mu.Lock()
	defer s.stuck.mu.Unlock()
	if !s.stuck.loaded {
		s.stuck.loaded = true
		_, good := s.load(s.name+"-stuck", func(text string) error {
			one, err := units.ParseStuck(text)
			s.stuck.known = append(s.stuck.known, one)
			return err
		})
		before := len(s.stuck.known)
		s.stuck.known = slices.DeleteFunc(s.stuck.known, func(one units.Stuck) bool { return !one.Alive(s.now) })
		if !good || len(s.stuck.known) < before {
			s.saveStuck()
		}
	}
	i := slices.IndexFunc(s.stuck.known, func(one units.Stuck) bool { return one.Key == key })
	if i < 0 {
		return units.Stuck{}, false
	}
	return s.stuck.known[i], true
}

func (s *pass) leaveBehind(one units.Stuck) {
	s.stuck.mu.Lock()
	defer s.stuck.mu.Unlock()
	s.stuck.known = append(s.stuck.known, one)
	s.saveStuck()
}

func (s *pass) saveStuck() {
	file := s.name + "-stuck"
	var err error
	if len(s.stuck.known) == 0 {
		err = s.dir.Remove(file)
	} else {
		var lines []string
		for _, one := range s.stuck.known {
			lines = append(lines, one.String())
		}
		err = s.dir.Save(file, units.StuckHeader, lines)
	}
	if err != nil {
		s.note("state not saved: %v", err)
	}
}
