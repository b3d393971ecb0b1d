package s3_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/blob/blobtest"
	"github.com/dayfly-dev/dayfly/internal/blob/s3"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
	fake "github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

var _ blob.Store = (*s3.Store)(nil)

// serve runs an S3 with one bucket.
func serve(t *testing.T) (*awsim.Server, aws.Config) {
	t.Helper()
	table := sigv4.NewTable(nil)
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"s3": &fake.Service{}}})
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	cfg := awsim.ClientConfig(listener.URL, table.User("function"))
	if err := awsim.MakeBucket(t.Context(), cfg, "logs"); err != nil {
		t.Fatal(err)
	}
	return server, cfg
}

func TestStore_Conformance(t *testing.T) {
	_, cfg := serve(t)
	blobtest.Run(t, s3.New(cfg, "logs"))
}

func TestStore_ConformanceOverMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it starts moto_server")
	}
	cfg, bucket := moto.Start(t), "dayfly-"+strings.ToLower(rand.Text())
	if err := awsim.MakeBucket(t.Context(), cfg, bucket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := awsim.RemoveBucket(context.WithoutCancel(t.Context()), cfg, bucket); err != nil {
			t.Error(err)
		}
	})
	blobtest.Run(t, s3.New(cfg, bucket))
}

func TestStore_WhatPassesIsTriedAgain(t *testing.T) {
	for name, fault := range map[string]wire.Fault{
		"broken before": {Before: wire.Fail(wire.Drop)},
		"broken after":  {After: wire.Fail(wire.Drop)},
		"slow down":     {Before: wire.Fail(&wire.Error{Status: http.StatusServiceUnavailable, Code: "SlowDown", Message: "injected"})},
		"conflict":      {Before: wire.Fail(&wire.Error{Status: http.StatusConflict, Code: "ConditionalRequestConflict", Message: "injected"})},
	} {
		t.Run(name, func(t *testing.T) {
			server, cfg := serve(t)
			s := s3.New(cfg, "logs")
			fault.Times = 1
			server.Inject(fault)
			if err := s.Put(t.Context(), "a", []byte("x")); err != nil {
				t.Errorf("put: %v", err)
			}
			server.Inject(fault)
			if got, err := s.Get(t.Context(), "a"); err != nil || !bytes.Equal(got, []byte("x")) {
				t.Errorf("got %q, %v", got, err)
			}
			fault.Times = 0 // always
			server.Inject(fault)
			if err := s.Put(t.Context(), "b", []byte("x")); !errors.Is(err, workflow.ErrBusy) {
				t.Errorf("got %v, want busy", err)
			}
		})
	}
}

func TestStore_ARefusalIsNotTriedAgain(t *testing.T) {
	server, cfg := serve(t)
	server.ForgetCalls()
	err := s3.New(cfg, "nobodys").Put(t.Context(), "a", []byte("x"))
	if err == nil || errors.Is(err, workflow.ErrBusy) || errors.Is(err, workflow.ErrNotFound) || len(server.Calls()) != 1 {
		t.Errorf("got %v after %d calls, want one that is refused", err, len(server.Calls()))
	}
}
