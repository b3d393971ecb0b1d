package lambdahost

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Limits of Lambda, in bytes. https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
const (
	MaxSyncPayload  = 6 << 20
	MaxSyncAnswer   = 6<<20 + 100
	MaxAsyncPayload = 1 << 20
	maxEnvironment  = 4 << 10
)

// Function is one deployed function.
type Function struct {
	Name      string // 1-64 characters of [A-Za-z0-9_-]
	Bootstrap string // absolute path of the binary

	Timeout  time.Duration // of one invocation; 0 means 3 s, as in Lambda; at most 15 min
	MemoryMB int           // what the function is told that it has; 0 means 128. Not enforced

	Environment map[string]string // its own variables: together at most 4 KB, none of Lambda's names
	Credentials Credentials       // of its role

	// ReservedConcurrency is how many environments may be busy at once: nil means that it shares the
	// account's with others, 0 switches the function off.
	ReservedConcurrency *int
	Async               AsyncConfig
}

// Credentials are the temporary credentials of a role.
type Credentials struct {
	AccessKeyID, SecretAccessKey, SessionToken string
}

// AsyncConfig says how often and how long asynchronous events are tried.
type AsyncConfig struct {
	MaximumRetryAttempts *int          // after errors of the function, 0 to 2; nil means 2
	MaximumEventAge      time.Duration // 60 s to 6 h; 0 means 6 h
	// OnFailure is given each event that is given up, from a goroutine of its own. Nil drops it,
	// as Lambda does without a destination.
	OnFailure func(Failure)
}

// Latency is what AWS takes and this machine does not: added so that a measured time can be
// compared with AWS. Zero adds nothing.
type Latency struct {
	ColdStart time.Duration // from an invocation to the start of its process
	Invoke    time.Duration // from an invocation to the environment, cold or warm
	Async     time.Duration // from an accepted event to its first invocation
	Schedule  time.Duration // from a schedule's time to its invocation
}

var (
	functionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	variableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]+$`)
)

// reserved are the variables that Lambda sets and a function's configuration may not.
// https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html
var reserved = []string{
	"_HANDLER", "_X_AMZN_TRACE_ID", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_EXECUTION_ENV",
	"AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_VERSION",
	"AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME", "AWS_LAMBDA_LOG_STREAM_NAME",
	"AWS_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"AWS_LAMBDA_RUNTIME_API", "LAMBDA_TASK_ROOT", "LAMBDA_RUNTIME_DIR",
}

// check refuses what Lambda would refuse, and sets what is zero to what Lambda takes for it.
func (f *Function) check() error {
	invalid := func(format string, args ...any) error {
		return &ServiceError{Status: 400, Code: "InvalidParameterValueException", Message: fmt.Sprintf(format, args...)}
	}
	f.Timeout, f.MemoryMB = cmp.Or(f.Timeout, 3*time.Second), cmp.Or(f.MemoryMB, 128)
	f.Async.MaximumEventAge = cmp.Or(f.Async.MaximumEventAge, 6*time.Hour)
	f.Environment = maps.Clone(f.Environment)
	switch {
	case !functionName.MatchString(f.Name):
		return invalid("function name %q is not 1 to 64 characters of [A-Za-z0-9_-]", f.Name)
	case !filepath.IsAbs(f.Bootstrap):
		return invalid("the bootstrap of %s, %q, is not an absolute path", f.Name, f.Bootstrap)
	case f.Timeout < 0 || f.Timeout > 15*time.Minute:
		return invalid("the time-out of %s, %s, is not within 15m", f.Name, f.Timeout)
	case f.MemoryMB < 128 || f.MemoryMB > 10240:
		return invalid("the memory of %s, %d MB, is not from 128 to 10240", f.Name, f.MemoryMB)
	case f.ReservedConcurrency != nil && *f.ReservedConcurrency < 0:
		return invalid("the reserved concurrency of %s is below zero", f.Name)
	case f.Async.MaximumRetryAttempts != nil && (*f.Async.MaximumRetryAttempts < 0 || *f.Async.MaximumRetryAttempts > 2):
		return invalid("the maximum retry attempts of %s are not 0, 1 or 2", f.Name)
	case f.Async.MaximumEventAge < time.Minute || f.Async.MaximumEventAge > 6*time.Hour:
		return invalid("the maximum event age of %s, %s, is not from 60s to 6h", f.Name, f.Async.MaximumEventAge)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Environment)) {
		if slices.Contains(reserved, name) {
			return invalid("the environment of %s contains a reserved key that cannot be modified: %s", f.Name, name)
		}
		if !variableName.MatchString(name) {
			return invalid("the environment of %s contains a name that is none: %q", f.Name, name)
		}
	}
	// The service measures the map as JSON, and says so in its refusal.
	if size, err := json.Marshal(f.Environment); err != nil || len(size) > maxEnvironment {
		return invalid("the environment of %s takes %d bytes and may take %d", f.Name, len(size), maxEnvironment)
	}
	return nil
}

// retries is how often an event is tried again after an error of the function.
func (f *Function) retries() int {
	if f.Async.MaximumRetryAttempts == nil {
		return 2
	}
	return *f.Async.MaximumRetryAttempts
}

// environ is the whole environment of a process of the function.
func (f *Function) environ(cfg Config, api, stream string) []string {
	env := []string{
		"LANG=en_US.UTF-8", "TZ=:UTC", "PATH=/usr/local/bin:/usr/bin:/bin:/opt/bin",
		"_HANDLER=bootstrap",
		"LAMBDA_TASK_ROOT=" + filepath.Dir(f.Bootstrap),
		"LAMBDA_RUNTIME_DIR=/var/runtime",
		"AWS_LAMBDA_RUNTIME_API=" + api,
		"AWS_REGION=" + cfg.Region, "AWS_DEFAULT_REGION=" + cfg.Region,
		"AWS_ACCESS_KEY_ID=" + f.Credentials.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + f.Credentials.SecretAccessKey,
		"AWS_SESSION_TOKEN=" + f.Credentials.SessionToken,
		"AWS_LAMBDA_FUNCTION_NAME=" + f.Name,
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		fmt.Sprintf("AWS_LAMBDA_FUNCTION_MEMORY_SIZE=%d", f.MemoryMB),
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/" + f.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME=" + stream,
	}
	for name, value := range f.Environment {
		env = append(env, name+"="+value)
	}
	return env
}

// resolve takes what the Invoke API takes for a function's name (a name, a partial or a whole ARN, each with
// or without a qualifier) and returns the name.
func resolve(name string) string {
	parts := strings.Split(name, ":")
	if i := slices.Index(parts, "function"); i >= 0 && i+1 < len(parts) {
		return parts[i+1]
	}
	return parts[0]
}
