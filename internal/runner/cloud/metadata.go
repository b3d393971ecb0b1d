package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/wait"
)

// How the metadata of a task is asked for. It is there before the container's first instruction as a rule,
// and answers within milliseconds.
const (
	metadataTries   = 6
	metadataTimeout = 3 * time.Second // of one try
	metadataWait    = 200 * time.Millisecond
	maxMetadata     = 1 << 20 // bytes of an answer
)

var taskARN = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^arn:aws(?:-[a-z]+){0,3}:ecs:([a-z0-9-]{1,32}):[0-9]{12}:task/[A-Za-z0-9_-]{1,255}/[A-Za-z0-9_-]{1,128}$`)
})

// ParseTask reads a task's ARN from the answer of its metadata endpoint (version 4, /task: the field
// TaskARN). It ignores other fields.
func ParseTask(answer []byte) (arn string, err error) {
	var in struct{ TaskARN string }
	if err := json.Unmarshal(answer, &in); err != nil {
		return "", errors.New("the task's metadata is not JSON")
	}
	if !taskARN().MatchString(in.TaskARN) {
		return "", fmt.Errorf("the task's metadata names no task: TaskARN is %.200q", in.TaskARN)
	}
	return in.TaskARN, nil
}

// regionOf is the region of a task's ARN; "" where the text is not one.
func regionOf(arn string) string {
	if m := taskARN().FindStringSubmatch(arn); m != nil {
		return m[1]
	}
	return ""
}

// Task asks the metadata endpoint of the container, whose address ECS puts into
// ECS_CONTAINER_METADATA_URI_V4, which task this is. It asks a few times within seconds.
func Task(ctx context.Context, address string) (arn string, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("ECS_CONTAINER_METADATA_URI_V4 is not an address")
	}
	hc := direct()
	defer hc.CloseIdleConnections()
	for n := 1; ; n++ {
		if arn, err = askTask(ctx, hc, strings.TrimRight(address, "/")+"/task"); err == nil {
			return arn, nil
		}
		if n == metadataTries || wait.For(ctx, metadataWait<<(n-1)) != nil {
			return "", fmt.Errorf("ask ECS which task this is: %w", err)
		}
	}
}

func askTask(ctx context.Context, hc *http.Client, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", errors.New("the address of its metadata cannot be used")
	}
	resp, err := hc.Do(req)
	if err != nil {
		return "", bare(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMetadata))
	switch {
	case err != nil:
		return "", bare(err)
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("its metadata answered with status %d", resp.StatusCode)
	}
	return ParseTask(body)
}

// direct is a client for addresses of the task's own machine: without a proxy, without redirects.
func direct() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: nil, MaxIdleConns: 2, IdleConnTimeout: 30 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bare is an error of a request without its address.
func bare(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}
