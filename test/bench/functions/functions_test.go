// Package functions_test measures what the cold start of each Lambda function costs, as ratios to an empty function
// built and started in the same way, and prints it next to its aims. It judges no change: it fails only where something
// did not work, or where a function needs the network, or does not say what it misses, before its first event.
package functions_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// shipped is what the functions are built for in the end; the zips of the aims are those.
const shipped = "arm64"

// empty is the package of the function that all others are compared with.
const empty = "./test/awsim/lambdahost/testdata/empty"

// BenchmarkFunctions prints the table. It takes its own samples, once: `make bench-functions` runs it with -benchtime 1x.
// With WHY in the environment it shows the package inits of each function that take longest.
func BenchmarkFunctions(b *testing.B) {
	const rounds = 15
	functions, err := measured(b.Context(), "../../..")
	if err != nil {
		b.Fatal(err)
	}
	network, err := newNetwork(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer network.close()
	host := lambdahost.New(lambdahost.Config{})
	defer host.Close()
	for _, f := range functions {
		if err := host.Put(deployed(f.name, f.bootstrap, network.address())); err != nil {
			b.Fatal(err)
		}
	}
	if err := startInTurn(b.Context(), host, functions, rounds); err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(b.Output(), "%s, %d cores, %s/%s, %s; load average %s; %d rounds, medians\n\n",
		figures.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), figures.LoadAverage(), rounds)
	table(b.Output(), functions, network.connections())
	base := median(functions[0].inits)
	b.ReportMetric(0, "ns/op")
	for _, f := range functions[1:] {
		b.ReportMetric(median(f.inits)/base, f.name+"-init-ratio")
	}
	if os.Getenv("WHY") == "" {
		return
	}
	if err := trace(b.Context(), b.Output(), functions, network.address()); err != nil {
		b.Fatal(err)
	}
}

// measurement is what is known of one function.
type measurement struct {
	name       string
	bootstrap  string  // for this machine
	here, zip  int64   // bytes of the zip for this machine, and as it is shipped
	inits      []int64 // nanoseconds, one for each round
	peakMemory []int64 // bytes, one for each round
}

// measured builds every function of the module, and the empty one first, for this machine and as it is shipped.
func measured(ctx context.Context, root string) ([]*measurement, error) {
	packages, err := bootstrap.Functions(root)
	if err != nil {
		return nil, err
	}
	packages = append([]string{empty}, packages...)
	dir := filepath.Join(root, ".cache", "bench-functions")
	here, err := bootstrap.Build(ctx, bootstrap.Config{Root: root, Out: filepath.Join(dir, runtime.GOARCH)}, packages...)
	if err != nil {
		return nil, err
	}
	there, err := bootstrap.Build(ctx, bootstrap.Config{Root: root, Out: filepath.Join(dir, "shipped"), Arch: shipped}, packages...)
	if err != nil {
		return nil, err
	}
	var all []*measurement
	for i, a := range here {
		m := &measurement{name: a.Name, bootstrap: a.Bootstrap}
		if m.here, err = size(a.Zip); err != nil {
			return nil, err
		}
		if m.zip, err = size(there[i].Zip); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func size(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// startInTurn starts each function once a round, in a different order each time, so that what else the
// machine does meets all of them alike. A first round fills the page cache and does not count.
func startInTurn(ctx context.Context, host *lambdahost.Host, functions []*measurement, rounds int) error {
	for round := range rounds + 1 {
		for i := range functions {
			f := functions[(i+round)%len(functions)]
			got, err := host.Warm(ctx, f.name)
			if err != nil {
				return fmt.Errorf("start %s: %w", f.name, err)
			}
			host.Kill(f.name)
			if round > 0 {
				f.inits = append(f.inits, int64(got.Duration))
				f.peakMemory = append(f.peakMemory, got.PeakMemory)
			}
		}
	}
	return nil
}

// deployed is a function with the environment that a stack would give it. Every address leads to the listener,
// which must not be called before there is an event.
func deployed(name, path, address string) lambdahost.Function {
	const arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:dayfly/"
	return lambdahost.Function{
		Name: name, Bootstrap: path, Timeout: time.Minute,
		Credentials: lambdahost.Credentials{AccessKeyID: "ASIAEXAMPLE", SecretAccessKey: "secret", SessionToken: "token"},
		Environment: map[string]string{
			"AWS_ENDPOINT_URL":          "http://" + address,
			"DAYFLY_SERVICE_URL":        "http://" + address,
			"DAYFLY_RELAY_URL":          "http://" + address + "/prod",
			"DAYFLY_JOBS_QUEUE_URL":     "http://" + address + "/123456789012/jobs",
			"DAYFLY_REPORTS_QUEUE_URL":  "http://" + address + "/123456789012/reports",
			"DAYFLY_POOL_TOKEN_SECRET":  arn + "pool-token-AbCdEf",
			"DAYFLY_TICKET_KEYS_SECRET": arn + "ticket-keys-AbCdEf",
			"DAYFLY_ADMIN_TOKEN_SECRET": arn + "admin-token-AbCdEf",
			"DAYFLY_INSTANCE":           "production",
			"DAYFLY_POOL":               "production",
			"DAYFLY_POLLING_WINDOW":     "50s",
			"DAYFLY_CLUSTER":            "arn:aws:ecs:us-east-1:123456789012:cluster/dayfly",
			"DAYFLY_TASK_DEFINITION":    "arn:aws:ecs:us-east-1:123456789012:task-definition/dayfly-runner:7",
			"DAYFLY_CONTAINER":          "runner",
			"DAYFLY_SUBNETS":            "subnet-0a1b2c3d4e5f60718,subnet-0a1b2c3d4e5f60719",
			"DAYFLY_SECURITY_GROUPS":    "sg-0a1b2c3d4e5f60718",
			"DAYFLY_TASK_ROLE_NAME":     "dayfly-runner",
			"DAYFLY_TABLE":              "dayfly",
		},
	}
}
