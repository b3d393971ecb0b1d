package lambdahost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Schedule is one of EventBridge Scheduler: it invokes a function asynchronously, again and again,
// at least once each time.
type Schedule struct {
	Name     string
	Function string
	Every    time.Duration // at least a minute, as in the service
	Input    []byte        // the event, JSON; nil means the scheduler's own
}

// AddSchedule adds a schedule. It fires by Tick, and by RunSchedules.
func (h *Host) AddSchedule(s Schedule) error {
	if s.Name == "" || s.Every < time.Minute {
		return fmt.Errorf("add schedule %q: it needs a name, and its period, %s, may not be below 1m", s.Name, s.Every)
	}
	if s.Input != nil && !json.Valid(s.Input) {
		return fmt.Errorf("add schedule %s: its input is not JSON", s.Name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.schedules[s.Name] = s
	return nil
}

// Tick fires a schedule now; with more than one copy it is delivered that often, as may happen.
func (h *Host) Tick(name string, copies int) error {
	h.mu.Lock()
	s, ok := h.schedules[name]
	h.mu.Unlock()
	if !ok {
		return fmt.Errorf("tick: there is no schedule %q", name)
	}
	input := s.Input
	if input == nil {
		envelope := h.envelope(Event{
			Source: "aws.scheduler", DetailType: "Scheduled Event", Detail: json.RawMessage(`"{}"`),
			Resources: []string{fmt.Sprintf("arn:aws:scheduler:%s:%s:schedule/default/%s", h.cfg.Region, h.cfg.Account, name)},
		})
		var err error
		if input, err = json.Marshal(envelope); err != nil {
			return err
		}
	}
	for range max(copies, 1) {
		if _, err := h.InvokeAsync(s.Function, input); err != nil {
			return fmt.Errorf("tick %s: %w", name, err)
		}
	}
	return nil
}

// RunSchedules fires every schedule each time that its period has passed on the host's clock, from the call on, until ctx
// ends. An invocation that is refused is reported to Config.Log, and the next one is not.
func (h *Host) RunSchedules(ctx context.Context) error {
	type due struct {
		name  string
		every time.Duration
		at    time.Time
	}
	var all []due
	now := h.cfg.Clock.Now()
	h.mu.Lock()
	for _, s := range h.schedules {
		all = append(all, due{s.Name, s.Every, now.Add(s.Every)})
	}
	h.mu.Unlock()
	if len(all) == 0 {
		return errors.New("run schedules: there are none")
	}
	for {
		slices.SortFunc(all, func(a, b due) int { return a.at.Compare(b.at) })
		if err := sleep(ctx, h.cfg.Clock, all[0].at.Sub(h.cfg.Clock.Now())); err != nil {
			return err
		}
		if err := sleep(ctx, h.cfg.Clock, h.cfg.Latency.Schedule); err != nil && ctx.Err() != nil {
			return err
		}
		if err := h.Tick(all[0].name, 1); err != nil && h.cfg.Log != nil {
			h.cfg.Log(all[0].name, err.Error())
		}
		all[0].at = all[0].at.Add(all[0].every)
	}
}

// Event is one on EventBridge's default bus. Put it again, unchanged, for the duplicate that its
// at-least-once delivery allows.
type Event struct {
	ID         string    // empty is made up
	Time       time.Time // zero means now
	Source     string    // such as aws.ecs
	DetailType string    // such as ECS Task State Change
	Resources  []string
	Detail     json.RawMessage
}

// Rule sends the events that match to a function.
type Rule struct {
	Name     string
	Function string
	// Pattern is an event pattern with lists of exact values, as a template has it:
	// {"source":["aws.ecs"],"detail":{"lastStatus":["STOPPED"]}}.
	Pattern json.RawMessage

	pattern map[string]any
}

// AddRule adds a rule for the events to come.
func (h *Host) AddRule(r Rule) error {
	var err error
	if r.pattern, err = parsePattern(r.Pattern); err != nil {
		return fmt.Errorf("add rule %s: %w", r.Name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules = append(h.rules, r)
	return nil
}

// PutEvent invokes, asynchronously, the function of each rule that matches, and returns how many
// did.
func (h *Host) PutEvent(ev Event) (int, error) {
	payload, err := json.Marshal(h.envelope(ev))
	if err != nil {
		return 0, fmt.Errorf("put event: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(payload, &fields); err != nil {
		return 0, fmt.Errorf("put event: %w", err)
	}
	h.mu.Lock()
	rules := slices.Clone(h.rules)
	h.mu.Unlock()
	matched := 0
	var errs []error
	for _, r := range rules {
		if !matches(r.pattern, fields) {
			continue
		}
		matched++
		if _, err := h.InvokeAsync(r.Function, payload); err != nil {
			errs = append(errs, fmt.Errorf("rule %s: %w", r.Name, err))
		}
	}
	return matched, errors.Join(errs...)
}

type envelope struct {
	Version    string          `json:"version"`
	ID         string          `json:"id"`
	DetailType string          `json:"detail-type"`
	Source     string          `json:"source"`
	Account    string          `json:"account"`
	Time       string          `json:"time"`
	Region     string          `json:"region"`
	Resources  []string        `json:"resources"`
	Detail     json.RawMessage `json:"detail"`
}

func (h *Host) envelope(ev Event) envelope {
	if ev.ID == "" {
		ev.ID = newID()
	}
	if ev.Time.IsZero() {
		ev.Time = h.cfg.Clock.Now()
	}
	if ev.Resources == nil {
		ev.Resources = []string{}
	}
	return envelope{
		Version: "0", ID: ev.ID, DetailType: ev.DetailType, Source: ev.Source, Account: h.cfg.Account,
		Time: ev.Time.UTC().Format(time.RFC3339), Region: h.cfg.Region, Resources: ev.Resources, Detail: ev.Detail,
	}
}

// parsePattern reads an event pattern. Operators (prefix, exists ...) are refused: what is not understood
// must not look as if it matched.
func parsePattern(raw []byte) (map[string]any, error) {
	var pattern map[string]any
	if err := json.Unmarshal(raw, &pattern); err != nil {
		return nil, fmt.Errorf("event pattern: %w", err)
	}
	return pattern, checkPattern(pattern)
}

func checkPattern(pattern map[string]any) error {
	for name, want := range pattern {
		switch want := want.(type) {
		case map[string]any:
			if err := checkPattern(want); err != nil {
				return err
			}
		case []any:
			if slices.ContainsFunc(want, func(v any) bool { return !scalar(v) }) {
				return fmt.Errorf("event pattern: %s holds an operator, and only lists of values are understood", name)
			}
		default:
			return fmt.Errorf("event pattern: %s is neither an object nor a list", name)
		}
	}
	return nil
}

func scalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// matches reports whether an event has, at each place that the pattern names, one of the values
// that it lists there. Of a list in the event one value is enough.
func matches(pattern, event map[string]any) bool {
	for name, want := range pattern {
		if sub, ok := want.(map[string]any); ok {
			have, _ := event[name].(map[string]any)
			if !matches(sub, have) {
				return false
			}
			continue
		}
		have, present := event[name]
		if !present {
			return false
		}
		values, ok := have.([]any)
		if !ok {
			values = []any{have}
		}
		wanted, _ := want.([]any)
		if !slices.ContainsFunc(values, func(v any) bool { return scalar(v) && slices.Contains(wanted, v) }) {
			return false
		}
	}
	return true
}
