package dynamodb_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// tokens keeps promises of DynamoDB that moto does not keep: a completed transaction is not done again,
// a client token comes with one request only, and concurrent transactions are serialized.
type tokens struct {
	next http.RoundTripper
	one  sync.Mutex

	mu   sync.Mutex
	seen map[string]*seenToken
}

type seenToken struct {
	mu      sync.Mutex
	request [sha256.Size]byte
	done    bool
	body    []byte
}

// RoundTrip implements http.RoundTripper.
func (t *tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactWriteItems") {
		t.one.Lock()
		defer t.one.Unlock()
		return t.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_ = r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(body))
	var in map[string]any
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	same, _ := json.Marshal(in) // with its keys in order
	token := t.of(fmt.Sprint(in["ClientRequestToken"]))
	token.mu.Lock()
	defer token.mu.Unlock()
	if token.done {
		if token.request != sha256.Sum256(same) {
			return answer(r, http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException","Message":"token reused"}`), nil
		}
		return answer(r, http.StatusOK, string(token.body)), nil
	}
	t.one.Lock()
	defer t.one.Unlock()
	out, err := t.next.RoundTrip(r)
	if err != nil || out.StatusCode != http.StatusOK {
		return out, err
	}
	token.body, err = io.ReadAll(out.Body)
	_ = out.Body.Close()
	token.done, token.request = true, sha256.Sum256(same)
	out.Body = io.NopCloser(bytes.NewReader(token.body))
	return out, err
}

func (t *tokens) of(token string) *seenToken {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen = map[string]*seenToken{}
	}
	if t.seen[token] == nil {
		t.seen[token] = &seenToken{}
	}
	return t.seen[token]
}

func answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}
