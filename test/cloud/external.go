package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awssecrets "github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Externals are the services that another server can answer. ECS, Lambda and the tasks' credentials are always ours:
// no free emulator runs tasks or keeps client tokens.
var Externals = []string{"sqs", "secretsmanager", "s3", "sts", "dynamodb"}

// Foreign are the credentials for other servers. LocalStack takes the account from the name of the key.
var Foreign = sigv4.Credentials{AccessKeyID: wire.Account, SecretAccessKey: "test"}

// ParseExternal reads a list of services, such as "sqs,s3=http://127.0.0.1:4567": each has its own address, or the
// common one.
func ParseExternal(list, common string) (map[string]string, error) {
	out := map[string]string{}
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		service, address, own := strings.Cut(one, "=")
		if !own {
			address = common
		}
		if !slices.Contains(Externals, service) || address == "" || out[service] != "" {
			return nil, fmt.Errorf("%q in %q: want SERVICE=ADDRESS, or SERVICE where there is a common address, each of %s once",
				one, list, strings.Join(Externals, ", "))
		}
		out[service] = address
	}
	return out, nil
}

// external is a service that another server answers. Its calls come through our own server, which checks the signature
// and the policies, because emulators check neither, records the call and shows it to faults, and so to taps.
type external struct {
	ours     awsim.Service // has its operations
	protocol wire.Protocol
	to       aws.Config
	name     string
	table    *sigv4.Table
	alone    sync.Mutex // see forward
}

// outside replaces the services of Config.External.
func (c *Cloud) outside(services map[string]awsim.Service) error {
	for name, address := range c.cfg.External {
		to, err := url.Parse(address)
		if err != nil || to.Host == "" || !slices.Contains(Externals, name) {
			return fmt.Errorf("external service %s at %q: want one of %s, at http://HOST:PORT", name, address, strings.Join(Externals, ", "))
		}
		e := &external{ours: services[name], protocol: wire.JSON{}, to: awsim.ClientConfig(address, Foreign), name: name, table: c.table}
		if speaker, ok := e.ours.(interface{ Protocol() wire.Protocol }); ok {
			e.protocol = speaker.Protocol()
		}
		services[name] = e
	}
	return nil
}

// Protocol implements what awsim asks.
func (e *external) Protocol() wire.Protocol { return e }

// Operations implements awsim.Service.
func (e *external) Operations() map[string]wire.Handler {
	all := e.ours.Operations()
	for name, ours := range all {
		all[name] = e.forward
		if name == "AssumeRole" {
			all[name] = func(ctx context.Context, c wire.Call) (any, error) {
				if _, err := ours(ctx, c); err != nil { // it checks the role's trust policy
					return nil, err
				}
				return e.assumed(ctx, c)
			}
		}
	}
	return all
}

// Read implements wire.Protocol. The request can be read again.
func (e *external) Read(r *http.Request, body []byte) (string, []byte, error) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return e.protocol.Read(r, body)
}

// answer is that of the other server.
type answer struct {
	*http.Response
	body []byte
}

// Fail implements wire.Protocol.
func (e *external) Fail(w http.ResponseWriter, r *http.Request, failure *wire.Error) {
	e.protocol.Fail(w, r, failure)
}

// Write implements wire.Protocol.
func (e *external) Write(w http.ResponseWriter, _ *http.Request, _ string, out any) error {
	a, ok := out.(answer)
	if !ok {
		return errors.New("the answer is not from another server")
	}
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.StatusCode)
	_, _ = w.Write(a.body) // its client may have gone
	return nil
}

// forward signs a call again, for the other server, and returns its answer. Calls that send and delete messages go one
// at a time: moto replaces the list of messages when it deletes one, and loses what is sent meanwhile.
func (e *external) forward(ctx context.Context, c wire.Call) (any, error) {
	if strings.HasPrefix(c.Operation, "SendMessage") || strings.HasPrefix(c.Operation, "DeleteMessage") {
		e.alone.Lock()
		defer e.alone.Unlock()
	}
	to, err := url.Parse(*e.to.BaseEndpoint)
	if err != nil {
		return nil, err
	}
	r := c.Request.Clone(ctx)
	r.RequestURI, r.Host, r.URL.Scheme, r.URL.Host, r.TransferEncoding = "", to.Host, to.Scheme, to.Host, nil
	query := r.URL.Query()
	for name := range query { // the signature can be in the address
		if strings.HasPrefix(name, "X-Amz-") {
			query.Del(name)
			r.URL.RawQuery = query.Encode()
		}
	}
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		r.Header.Del(name)
	}
	out, err := awsim.SignedClient(e.to, e.name).Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Body.Close() }()
	body, err := io.ReadAll(out.Body)
	return answer{out, body}, err
}

// assumed forwards a call of AssumeRole. What it returns are credentials that count here.
func (e *external) assumed(ctx context.Context, c wire.Call) (any, error) {
	out, err := e.forward(ctx, c)
	a, ok := out.(answer)
	if err != nil || !ok || a.StatusCode != http.StatusOK {
		return out, err
	}
	var in struct{ RoleArn, RoleSessionName string }
	var got struct {
		AccessKeyID     string `xml:"AssumeRoleResult>Credentials>AccessKeyId"`
		SecretAccessKey string `xml:"AssumeRoleResult>Credentials>SecretAccessKey"`
		SessionToken    string `xml:"AssumeRoleResult>Credentials>SessionToken"`
	}
	if err := errors.Join(json.Unmarshal(c.Body, &in), xml.Unmarshal(a.body, &got)); err != nil {
		return nil, err
	}
	session := e.table.Session(in.RoleArn, in.RoleSessionName, time.Hour)
	session.AccessKeyID, session.SecretAccessKey, session.SessionToken = got.AccessKeyID, got.SecretAccessKey, got.SessionToken
	e.table.Add(session)
	return out, nil
}

// Remove removes what was made in other servers, after Close. (Ours are gone with it.)
func (c *Cloud) Remove(ctx context.Context) error {
	var all []error
	for _, m := range c.made {
		address, ok := c.cfg.External[m.service]
		if !ok {
			continue
		}
		cfg := awsim.ClientConfig(address, Foreign)
		var err error
		switch m.service {
		case "sqs":
			_, err = awssqs.NewFromConfig(cfg).DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: aws.String(address + "/" + wire.Account + "/" + m.name)})
		case "secretsmanager":
			_, err = awssecrets.NewFromConfig(cfg).DeleteSecret(ctx, &awssecrets.DeleteSecretInput{SecretId: &m.name, ForceDeleteWithoutRecovery: aws.Bool(true)})
		case "dynamodb":
			_, err = awsdynamodb.NewFromConfig(cfg).DeleteTable(ctx, &awsdynamodb.DeleteTableInput{TableName: &m.name})
		case "s3":
			err = awsim.RemoveBucket(ctx, cfg, m.name)
		}
		if err != nil {
			all = append(all, fmt.Errorf("remove %s of %s: %w", m.name, m.service, err))
		}
	}
	return errors.Join(all...)
}
