package cloud

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"

	fakes3 "github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// externals are the services that somebody else's fake may stand in for. ECS, Lambda and the tasks' credentials
// are ours always: no free one runs tasks, or keeps client tokens.
var externals = map[string]bool{"sqs": true, "secretsmanager": true, "dynamodb": true, "s3": true}

// credential is the name of the credentials in a signature, from which LocalStack takes the account.
var (
	credential = regexp.MustCompile(`Credential=[^/]+/`)
	addressed  = regexp.MustCompile(`X-Amz-Credential=[^&%]+%2F`)
)

// front is the fake AWS as all clients call it. A call of a service in Config.External is checked first, its signature
// and the policies, because other fakes check neither; then it is forwarded.
func (c *Cloud) front() (http.Handler, error) {
	proxies := map[string]http.Handler{}
	for service, address := range c.cfg.External {
		to, err := url.Parse(address)
		if err != nil || to.Host == "" || !externals[service] {
			return nil, fmt.Errorf("external service %s at %q: want one of sqs, secretsmanager, dynamodb, s3, at http://HOST:PORT", service, address)
		}
		proxies[service] = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			if r.In.Header.Get("Authorization") == "" { // the signature is in the address
				r.Out.URL.RawQuery = addressed.ReplaceAllString(r.In.URL.RawQuery, "X-Amz-Credential="+wire.Account+"%2F")
				return
			}
			r.Out.Header.Set("Authorization", credential.ReplaceAllString(r.In.Header.Get("Authorization"), "Credential="+wire.Account+"/"))
		}}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope, err := sigv4.ScopeOf(r)
		to, external := proxies[scope.Service]
		if err != nil || !external {
			c.AWS.ServeHTTP(w, r)
			return
		}
		if err := c.admit(r, scope.Service); err != nil {
			refuse(w, err)
			return
		}
		to.ServeHTTP(w, r)
	}), nil
}

// admit checks a call of an external service, and leaves its body to be read again.
func (c *Cloud) admit(r *http.Request, service string) error {
	who, err := c.AWS.Authenticate(r, service)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	call := wire.Call{Service: service, Caller: who, Region: wire.Region, Request: r}
	read := wire.JSON{}.Read
	if service == "s3" {
		read = (&fakes3.Service{}).Protocol().Read
	}
	if call.Operation, call.Body, err = read(r, body); err != nil {
		return err
	}
	return c.judge.allow(call)
}

func refuse(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		e = &wire.Error{Status: http.StatusInternalServerError, Code: "InternalFailure", Message: err.Error()}
	}
	if e.Status == 0 {
		e.Status = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("X-Amzn-Errortype", e.Code)
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": e.Code, "message": e.Message})
}
