// Package secretsmanager is a fake AWS Secrets Manager: secrets with versions and their staging labels,
// found by name, by ARN and by an ARN without its random end, deleted after a recovery window. It rotates
// nothing and encrypts nothing.
//
// Source: the Secrets Manager API reference.
package secretsmanager

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Staging labels that the service moves by itself.
const (
	current  = "AWSCURRENT"
	previous = "AWSPREVIOUS"
)

const maxValue = 65536 // bytes

// Service is Secrets Manager. Its field is set before it is used.
type Service struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu      sync.Mutex
	secrets map[string]*secret // by name
}

type secret struct {
	name, arn   string
	description string
	kmsKey      string
	tags        []tag
	created     time.Time
	changed     time.Time
	deleted     time.Time // when it will be gone; zero means that it was not deleted
	versions    []*version
}

type version struct {
	id      string
	text    *string
	binary  []byte
	stages  []string
	created time.Time
}

type tag struct{ Key, Value string }

// Operations implements awsim.Service.
func (s *Service) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{
		"CreateSecret":             s.createSecret,
		"DeleteSecret":             s.deleteSecret,
		"DescribeSecret":           s.describeSecret,
		"GetSecretValue":           s.getSecretValue,
		"ListSecretVersionIds":     s.listSecretVersionIDs,
		"PutSecretValue":           s.putSecretValue,
		"RestoreSecret":            s.restoreSecret,
		"UpdateSecretVersionStage": s.updateSecretVersionStage,
	}
}

func (s *Service) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

func failure(code, format string, args ...any) error {
	return &wire.Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

func notFound() error {
	return failure("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
}

// find finds a secret that is not gone yet. The lock is held.
func (s *Service) find(id string) (*secret, error) {
	now := s.now()
	for _, c := range s.secrets {
		if c.name != id && c.arn != id && c.arn[:len(c.arn)-7] != id {
			continue
		}
		if !c.deleted.IsZero() && !now.Before(c.deleted) {
			delete(s.secrets, c.name)
			break
		}
		return c, nil
	}
	if id == "" {
		return nil, failure("InvalidParameterException", "You must provide a value for the SecretId parameter.")
	}
	return nil, notFound()
}

// alive is find for a secret that was not deleted.
func (s *Service) alive(id string) (*secret, error) {
	c, err := s.find(id)
	if err == nil && !c.deleted.IsZero() {
		return nil, failure("InvalidRequestException", "You can't perform this operation on the secret because it was marked for deletion.")
	}
	return c, err
}

func (c *secret) version(id string) *version {
	for _, v := range c.versions {
		if v.id == id {
			return v
		}
	}
	return nil
}

func (c *secret) staged(stage string) *version {
	for _, v := range c.versions {
		if slices.Contains(v.stages, stage) {
			return v
		}
	}
	return nil
}

// move puts a staging label onto a version, or with nil takes it away. The version that was current
// becomes the previous one.
func (c *secret) move(stage string, to *version) {
	from := c.staged(stage)
	if from == to {
		return
	}
	if from != nil {
		from.stages = slices.DeleteFunc(from.stages, func(s string) bool { return s == stage })
	}
	if to != nil {
		to.stages = append(to.stages, stage)
	}
	if stage == current && from != nil {
		c.move(previous, from)
	}
}

type input struct {
	Name                       string
	SecretID                   string `json:"SecretId"`
	ClientRequestToken         string
	Description                string
	KmsKeyID                   string `json:"KmsKeyId"`
	SecretString               *string
	SecretBinary               []byte
	Tags                       []tag
	VersionID                  string `json:"VersionId"`
	VersionStage               string
	VersionStages              []string
	MoveToVersionID            string `json:"MoveToVersionId"`
	RemoveFromVersionID        string `json:"RemoveFromVersionId"`
	RecoveryWindowInDays       *int
	ForceDeleteWithoutRecovery bool
	IncludeDeprecated          bool
}

func (in input) hasValue() bool { return in.SecretString != nil || in.SecretBinary != nil }

func (in input) check() error {
	switch {
	case in.SecretString != nil && in.SecretBinary != nil:
		return failure("InvalidParameterException", "You can't specify both a binary secret value and a string secret value in the same secret.")
	case in.SecretString != nil && len(*in.SecretString) > maxValue, len(in.SecretBinary) > maxValue:
		return failure("InvalidParameterException", "The secret value is longer than %d bytes.", maxValue)
	case in.ClientRequestToken != "" && (len(in.ClientRequestToken) < 32 || len(in.ClientRequestToken) > 64):
		return failure("InvalidParameterException", "A ClientRequestToken has 32 to 64 characters.")
	}
	return nil
}

// add makes a version of an input. The same token with the same value is the same version.
func (c *secret) add(in input, now time.Time) (*version, error) {
	id := in.ClientRequestToken
	if id == "" {
		id = wire.RequestID()
	}
	v := &version{id: id, text: in.SecretString, binary: in.SecretBinary, created: now}
	if old := c.version(id); old != nil {
		if same := (old.text == nil) == (v.text == nil) && (old.text == nil || *old.text == *v.text) && bytes.Equal(old.binary, v.binary); !same {
			return nil, failure("ResourceExistsException", "You can't use ClientRequestToken %s because that value is already in use for a version of secret %s.", id, c.arn)
		}
		return old, nil
	}
	c.versions = append(c.versions, v)
	c.changed = now
	return v, nil
}

var secretName = regexp.MustCompile(`^[A-Za-z0-9/_+=.@-]{1,512}$`)

func (s *Service) createSecret(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[input](c)
	if err != nil {
		return nil, err
	}
	if !secretName.MatchString(in.Name) {
		return nil, failure("ValidationException", "Invalid name. Must be a valid name containing alphanumeric characters, or any of the following: -/_+=.@!")
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if old, err := s.find(in.Name); err == nil {
		if !old.deleted.IsZero() {
			return nil, failure("InvalidRequestException", "You can't create this secret because a secret with this name is already scheduled for deletion.")
		}
		v := old.version(in.ClientRequestToken)
		if v == nil {
			return nil, failure("ResourceExistsException", "The operation failed because the secret %s already exists.", in.Name)
		}
		if _, err := old.add(in, now); err != nil {
			return nil, err
		}
		return map[string]any{"ARN": old.arn, "Name": old.name, "VersionId": v.id}, nil
	}
	one := &secret{
		name: in.Name, arn: "arn:aws:secretsmanager:" + wire.Region + ":" + wire.Account + ":secret:" + in.Name + "-" + rand.Text()[:6],
		description: in.Description, kmsKey: in.KmsKeyID, tags: in.Tags, created: now, changed: now,
	}
	out := map[string]any{"ARN": one.arn, "Name": one.name}
	if in.hasValue() {
		v, err := one.add(in, now)
		if err != nil {
			return nil, err
		}
		one.move(current, v)
		out["VersionId"] = v.id
	}
	if s.secrets == nil {
		s.secrets = map[string]*secret{}
	}
	s.secrets[one.name] = one
	return out, nil
}

// with decodes an input and does something with the living secret that it names, under the lock.
func (s *Service) with(c wire.Call, do func(in input, one *secret, now time.Time) (any, error)) (any, error) {
	in, err := wire.Decode[input](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, err := s.alive(in.SecretID)
	if err != nil {
		return nil, err
	}
	return do(in, one, s.now())
}

func (s *Service) putSecretValue(_ context.Context, c wire.Call) (any, error) {
	return s.with(c, func(in input, one *secret, now time.Time) (any, error) {
		if err := in.check(); err != nil {
			return nil, err
		}
		if !in.hasValue() {
			return nil, failure("InvalidParameterException", "You must provide either SecretString or SecretBinary.")
		}
		stages := in.VersionStages
		if len(stages) == 0 {
			stages = []string{current}
		}
		v, err := one.add(in, now)
		if err != nil {
			return nil, err
		}
		for _, stage := range stages {
			one.move(stage, v)
		}
		return map[string]any{"ARN": one.arn, "Name": one.name, "VersionId": v.id, "VersionStages": v.stages}, nil
	})
}

func (s *Service) getSecretValue(_ context.Context, c wire.Call) (any, error) {
	return s.with(c, func(in input, one *secret, _ time.Time) (any, error) {
		stage := in.VersionStage
		if stage == "" && in.VersionID == "" {
			stage = current
		}
		v := one.staged(stage)
		if in.VersionID != "" {
			v = one.version(in.VersionID)
		}
		switch {
		case v == nil && in.VersionID != "":
			return nil, failure("ResourceNotFoundException", "Secrets Manager can't find the specified secret value for VersionId: %s", in.VersionID)
		case v == nil:
			return nil, failure("ResourceNotFoundException", "Secrets Manager can't find the specified secret value for staging label: %s", stage)
		case stage != "" && !slices.Contains(v.stages, stage):
			return nil, failure("InvalidRequestException", "You provided a VersionStage that is not associated to the provided VersionId.")
		}
		out := map[string]any{"ARN": one.arn, "Name": one.name, "VersionId": v.id, "VersionStages": v.stages, "CreatedDate": wire.Time(v.created)}
		if v.text != nil {
			out["SecretString"] = *v.text
		} else {
			out["SecretBinary"] = v.binary
		}
		return out, nil
	})
}

func (s *Service) updateSecretVersionStage(_ context.Context, c wire.Call) (any, error) {
	return s.with(c, func(in input, one *secret, now time.Time) (any, error) {
		var to *version
		if in.MoveToVersionID != "" {
			if to = one.version(in.MoveToVersionID); to == nil {
				return nil, notFound()
			}
		}
		from := one.staged(in.VersionStage)
		switch {
		case in.VersionStage == "":
			return nil, failure("InvalidParameterException", "You must provide a value for the VersionStage parameter.")
		case from != nil && from != to && from.id != in.RemoveFromVersionID:
			return nil, failure("InvalidParameterException", "The parameter RemoveFromVersionId can't be empty or different. Staging label %s is currently attached to version %s, so you must explicitly reference that version in RemoveFromVersionId.", in.VersionStage, from.id)
		case to == nil && in.VersionStage == current:
			return nil, failure("InvalidParameterException", "You can't remove the staging label AWSCURRENT from a version without moving it to another.")
		}
		one.move(in.VersionStage, to)
		one.changed = now
		return map[string]any{"ARN": one.arn, "Name": one.name}, nil
	})
}
