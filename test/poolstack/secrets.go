package poolstack

import (
	"context"
	"sync"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Secrets is as much of Secrets Manager as a function asks for: the text of a secret by its name.
type Secrets struct {
	mu     sync.Mutex
	values map[string]string
	reads  int
}

// Set stores a secret's text.
func (s *Secrets) Set(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = text
}

// Reads is how often a secret was read.
func (s *Secrets) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// Operations implements awsim.Service.
func (s *Secrets) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{"GetSecretValue": s.get}
}

func (s *Secrets) get(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct {
		SecretID string `json:"SecretId"`
	}](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	text, ok := s.values[in.SecretID]
	if !ok {
		return nil, &wire.Error{Code: "ResourceNotFoundException", Message: "Secrets Manager can't find the specified secret."}
	}
	return map[string]any{"Name": in.SecretID, "SecretString": text}, nil
}
