package policy

import (
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// EvaluateIn is Evaluate with another bound of memory than MaxMemory.
func EvaluateIn(ctx context.Context, directory string, input []byte, timeout time.Duration, memory uint64) (api.PackageAnswer, error) {
	value, err := parseInput(input)
	if err != nil {
		return api.PackageAnswer{}, err
	}
	return evaluate(ctx, directory, value, timeout, memory), nil
}
