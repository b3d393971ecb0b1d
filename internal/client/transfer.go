package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Artifacts announces artifacts, or says that their bytes have arrived.
func (r *Runner) Artifacts(ctx context.Context, in api.NewArtifacts) (api.ArtifactsTaken, error) {
	return send[api.ArtifactsTaken](ctx, r, "artifacts", in, false)
}

// Input asks for the artifact that the run is to use.
func (r *Runner) Input(ctx context.Context) (out api.Input, err error) {
	_, err = r.do(ctx, call{op: "ask for the input of job " + r.id, method: http.MethodGet, path: []string{"v1", "jobs", r.id, "input"}}, &out)
	return out, err
}

// InputOf asks for the artifact with the value of an input of the spec, counted from 0.
func (r *Runner) InputOf(ctx context.Context, n int) (out api.Input, err error) {
	_, err = r.do(ctx, call{
		op: fmt.Sprintf("ask for input %d of job %s", n, r.id), method: http.MethodGet, path: []string{"v1", "jobs", r.id, "input"},
		send: http.Header{api.HeaderInput: {strconv.Itoa(n)}},
	}, &out)
	return out, err
}

// Upload sends the bytes of an artifact to where the relay says. Bytes that are there already are no error. Only ctx
// bounds the time.
func (r *Runner) Upload(ctx context.Context, to api.Transfer, name string, size int64, body io.ReadSeeker) error {
	err := r.transfer(ctx, to, http.MethodPut, func(req *http.Request) (err error) {
		if strings.HasPrefix(to.URL, "/") {
			req.Header.Set(api.HeaderArtifact, name)
		}
		req.ContentLength = size
		if size == 0 {
			req.Body = http.NoBody // with any other, no length would be sent
			return nil
		}
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := body.Seek(0, io.SeekStart)
			return io.NopCloser(body), err
		}
		req.Body, err = req.GetBody()
		return err
	}, io.Discard, maxAnswer)
	if err != nil {
		return fmt.Errorf("send artifact %s: %w", name, err)
	}
	return nil
}

// Download gets the bytes of an artifact, which are at most so many. Only ctx bounds the time.
func (r *Runner) Download(ctx context.Context, from api.Transfer, to io.Writer, limit int64) error {
	if err := r.transfer(ctx, from, http.MethodGet, nil, to, limit); err != nil {
		return fmt.Errorf("get the input of job %s: %w", r.id, err)
	}
	return nil
}

// transfer makes one request for the bytes of an artifact. That of a path goes to the relay, as all calls do. Any other
// goes out bare: its URL is the permission, and the server behind it must see neither the ticket nor the run.
func (r *Runner) transfer(ctx context.Context, t api.Transfer, method string, add func(*http.Request) error, to io.Writer, limit int64) error {
	path, ours := strings.CutPrefix(t.URL, "/")
	at := &r.endpoint
	var req *http.Request
	var err error
	if ours {
		req, err = r.request(ctx, call{method: method, path: strings.Split(path, "/")}, r.token())
	} else {
		at, req, err = bare(ctx, method, t)
	}
	if err == nil && add != nil {
		err = add(req)
	}
	if err != nil {
		return err
	}
	response, err := at.http.Do(req)
	if err != nil {
		return at.unreached(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= 200 && response.StatusCode <= 299 {
		n, err := io.Copy(to, io.LimitReader(response.Body, limit+1))
		if err != nil {
			return at.unreached(ctx, err)
		}
		if n > limit {
			return workflow.Refuse(workflow.ErrTooLarge, "", "more than %d bytes came", limit)
		}
		return nil
	}
	if method == http.MethodPut && response.StatusCode == http.StatusPreconditionFailed {
		return nil // it is there already, and nothing is ever overwritten
	}
	if !ours {
		return elsewhere(response)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return at.unreached(ctx, err)
	}
	return at.refused(response, text)
}

// bare makes a request of a URL that is a secret, and an endpoint that names its host alone.
func bare(ctx context.Context, method string, t api.Transfer) (*endpoint, *http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, t.URL, nil)
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "https" && req.URL.Scheme != "http" {
		return nil, nil, workflow.Refuse(workflow.ErrInvalid, "url", "the relay named a place for the bytes that is not a URL")
	}
	for name, value := range t.Header {
		req.Header.Set(name, value)
	}
	at, err := newEndpoint(req.URL.Scheme+"://"+req.URL.Host, nil, "", nil, 0)
	return at, req, err
}

// elsewhere is the error of an answer of the place of artifacts. None of them says anything about the run. A 403 may
// mean that the URL is no longer valid: ask again for a new one.
func elsewhere(response *http.Response) error {
	kind := workflow.ErrConflict
	switch code := response.StatusCode; {
	case code == http.StatusForbidden, code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		kind = workflow.ErrBusy
	}
	said := fmt.Sprintf("the place of the artifacts at %s answered %d %s", response.Request.URL.Host, response.StatusCode, http.StatusText(response.StatusCode))
	return &workflow.Error{Kind: kind, Message: said, RetryAfter: api.ParseRetryAfter(response.Header.Get("Retry-After"), time.Now())}
}
