// Package ssm is a fake of the Parameter Store of AWS Systems Manager: parameters by name and by ARN, with the bounds
// of the standard tier. It keeps no old versions and encrypts nothing.
//
// Source: the Systems Manager API reference, PutParameter and GetParameter.
package ssm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

const maxValue = 4096 // bytes

// Prefix begins the ARN of each parameter; its name follows, with one slash between them.
const Prefix = "arn:aws:ssm:" + wire.Region + ":" + wire.Account + ":parameter"

// Service is the Parameter Store.
type Service struct {
	mu     sync.Mutex
	values map[string]parameter // by name, without the slash that it may begin with
}

type parameter struct {
	Name, Type, Value string
	Version           int
}

// Operations implements awsim.Service.
func (s *Service) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{"PutParameter": s.put, "GetParameter": s.get}
}

func (s *Service) put(_ context.Context, c wire.Call) (any, error) {
	var in struct {
		parameter
		Overwrite bool
	}
	if err := json.Unmarshal(c.Body, &in); err != nil {
		return nil, err
	}
	if in.Value == "" || len(in.Value) > maxValue {
		return nil, &wire.Error{Code: "ValidationException", Message: fmt.Sprintf("Standard tier parameters support a maximum parameter value of %d characters.", maxValue)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(in.Name, "/")
	was, exists := s.values[key]
	if exists && !in.Overwrite {
		return nil, &wire.Error{Code: "ParameterAlreadyExists", Message: "The parameter already exists. To overwrite this value, set the overwrite option in the request to true."}
	}
	if s.values == nil {
		s.values = map[string]parameter{}
	}
	in.Version = was.Version + 1
	s.values[key] = in.parameter
	return map[string]any{"Version": in.Version, "Tier": "Standard"}, nil
}

func (s *Service) get(_ context.Context, c wire.Call) (any, error) {
	var in struct {
		Name           string
		WithDecryption bool
	}
	if err := json.Unmarshal(c.Body, &in); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(strings.TrimPrefix(in.Name, Prefix), "/")
	p, ok := s.values[key]
	if !ok {
		return nil, &wire.Error{Code: "ParameterNotFound"}
	}
	if p.Type == "SecureString" && !in.WithDecryption {
		p.Value = "AQICAHh-encrypted"
	}
	return map[string]any{"Parameter": map[string]any{
		"Name": p.Name, "Type": p.Type, "Value": p.Value, "Version": p.Version, "ARN": Prefix + "/" + key, "DataType": "text",
	}}, nil
}

// Put keeps an encrypted parameter at a server, in place of an older one of that name. The client signs the call.
func Put(ctx context.Context, client *http.Client, url, name, value string) error {
	body, err := json.Marshal(map[string]any{"Name": name, "Value": value, "Type": "SecureString", "Overwrite": true})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "AmazonSSM.PutParameter")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("put parameter %s: status %d", name, resp.StatusCode)
	}
	return nil
}
