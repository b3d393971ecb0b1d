package cloud

import (
	"net"
	"net/http"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// FunctionNames are the names of all functions, as the host knows them.
func (c *Cloud) FunctionNames() (out []string) {
	for _, s := range []*templates.Stack{c.Control, c.Pool} {
		for _, logical := range s.Of("AWS::Lambda::Function") {
			out = append(out, c.functionName(s, logical))
		}
	}
	return out
}

// delayed serves each request a while after it came.
func delayed(d time.Duration, h http.Handler) http.Handler {
	if d <= 0 {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			h.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// Request is one request to an API, as its gateway saw it.
type Request struct {
	Method, Path string
	Began, Ended time.Time
}

// observed tells of the requests that a handler has answered.
func observed(tell func(Request), h http.Handler) http.Handler {
	if tell == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := Request{Method: r.Method, Path: r.URL.Path, Began: time.Now()}
		h.ServeHTTP(w, r)
		out.Ended = time.Now()
		tell(out)
	})
}

type connection struct{}

// Connection is the connection on which a request came, at our side.
func Connection(r *http.Request) net.Conn {
	conn, _ := r.Context().Value(connection{}).(net.Conn)
	return conn
}

func (c *Cloud) metered(name string, h http.Handler) http.Handler {
	if c.cfg.Meter == nil {
		return h
	}
	return c.cfg.Meter(name, h)
}
