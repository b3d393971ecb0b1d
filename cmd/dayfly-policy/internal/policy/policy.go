// Package policy evaluates packages of policies in Rego over a plan or a state, and runs their tests. An evaluation
// that does not finish is an error of its package and never passes. A package sees its own directory and the input:
// not the network, the environment, or other files. The package knows nothing of groups, waivers and runs.
package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// Bounds of a query.
const (
	MaxInput    = 64 << 20 // bytes of a plan or a state in JSON
	maxQuery    = MaxInput + 4<<20
	maxPackages = 1000
)

// Bounds of an answer.
const (
	MaxFindings = 500     // of a package
	maxMessage  = 8 << 10 // a runner keeps 1000 of it
	maxAddress  = 1000
	maxRule     = 255
	maxError    = 1000
)

// MaxMemory is how many bytes one package may take beside the plan or the state.
const MaxMemory = 1 << 30

// DefaultTime is how long one package may take where nothing else is said.
const DefaultTime = time.Minute

// ReadQuery reads a query, within bounds.
func ReadQuery(r io.Reader) (api.PolicyQuery, error) {
	var q api.PolicyQuery
	raw, err := readUpTo(r, maxQuery)
	if err != nil {
		return q, fmt.Errorf("read the query: %w", err)
	}
	if err := json.Unmarshal(raw, &q); err != nil {
		return q, fmt.Errorf("read the query: it is not a query of a runner: %w", err)
	}
	switch {
	case len(q.Input) > MaxInput:
		return q, fmt.Errorf("input: has more than %d MiB", MaxInput>>20)
	case len(q.Packages) > maxPackages:
		return q, fmt.Errorf("packages: there are more than %d", maxPackages)
	}
	return q, nil
}

// readUpTo reads all of r, and fails if that is more than so many bytes.
func readUpTo(r io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("it has more than %d MiB", limit>>20)
	}
	return raw, nil
}

// parseInput makes the input of rules from a plan or a state. Rules over anything but an object would all be
// undefined, which looks as if nothing were denied.
func parseInput(raw []byte) (ast.Value, error) {
	if !json.Valid(raw) {
		return nil, errors.New("is not one document in JSON; `tofu show -json plan.tfplan` and `terraform show -json` write one")
	}
	var doc any
	if err := util.UnmarshalJSON(raw, &doc); err != nil {
		return nil, fmt.Errorf("is not JSON that can be read: %w", err)
	}
	if object, ok := doc.(map[string]any); !ok || len(object) == 0 {
		return nil, errors.New("is not a plan or a state: want a JSON object with fields")
	}
	value, err := ast.InterfaceToValue(doc)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return value, nil
}

// Answer evaluates the packages of a query one after the other; each may take so long. An error means that the query
// itself is wrong. The mistakes of a package are in its answer.
func Answer(ctx context.Context, q api.PolicyQuery, each time.Duration) (api.PolicyAnswer, error) {
	input, err := parseInput(q.Input)
	if err != nil {
		return api.PolicyAnswer{}, fmt.Errorf("input: %w", err)
	}
	answer := api.PolicyAnswer{Packages: make([]api.PackageAnswer, 0, len(q.Packages))}
	for _, p := range q.Packages {
		a := evaluate(ctx, p.Directory, input, each, MaxMemory)
		a.Name = p.Name
		answer.Packages = append(answer.Packages, a)
	}
	return answer, nil
}

// Evaluate returns the answer of the package in a directory for a plan or a state.
func Evaluate(ctx context.Context, directory string, input []byte, timeout time.Duration) (api.PackageAnswer, error) {
	value, err := parseInput(input)
	if err != nil {
		return api.PackageAnswer{}, err
	}
	return evaluate(ctx, directory, value, timeout, MaxMemory), nil
}

// evaluate never panics and never takes much longer than it may. A parser or a builtin that does not check its
// context goes on in the background; it ends with the process. Memory is measured every few milliseconds, so a
// package may have more than MaxMemory for a moment; the program bounds its memory in all.
func evaluate(ctx context.Context, directory string, input ast.Value, timeout time.Duration, memory uint64) api.PackageAnswer {
	a, err := within(ctx, timeout, memory, func(ctx context.Context) (api.PackageAnswer, error) {
		p, err := load(directory, false)
		if err != nil {
			return api.PackageAnswer{}, err
		}
		compiled, err := p.compile(ctx)
		if err != nil {
			return api.PackageAnswer{}, err
		}
		return compiled.evaluate(ctx, input), nil
	})
	if err != nil {
		a = api.PackageAnswer{Error: sentence(err)}
	}
	if a.Findings == nil {
		a.Findings = []api.PackageFinding{}
	}
	return a
}

// within runs do for at most so long, and while it takes at most so many bytes of memory. A panic in it is an error.
func within[T any](ctx context.Context, timeout time.Duration, memory uint64, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go watchMemory(ctx, used(), memory, stop)
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("the evaluation broke off: %v", p)
			}
			done <- r
		}()
		r.value, r.err = do(ctx)
	}()
	var none T
	select {
	case r := <-done:
		if ctx.Err() != nil {
			return none, late(ctx, timeout)
		}
		return r.value, r.err
	case <-ctx.Done():
		return none, late(ctx, timeout)
	}
}

func late(ctx context.Context, timeout time.Duration) error {
	if large, ok := errors.AsType[largeError](context.Cause(ctx)); ok {
		return large
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("took longer than %s", text.Duration(timeout))
	}
	return errors.New("was interrupted")
}
