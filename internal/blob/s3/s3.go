// Package s3 keeps blobs as objects of one bucket of Amazon S3. It needs the rights to put and to get them, no others.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/internal/awss3"
	"github.com/dayfly-dev/dayfly/internal/awss3/s3error"
	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	tries     = 3
	firstWait = 100 * time.Millisecond // mean wait after a failure that passes; it doubles
	maxWait   = time.Second
	patience  = 5 * time.Second // for one try
)

// Store keeps blobs in a bucket.
type Store struct {
	cfg    aws.Config
	bucket string
}

// New returns the store in a bucket of the configuration's region, or at its BaseEndpoint. It makes no call.
func New(cfg aws.Config, bucket string) *Store { return &Store{cfg, bucket} }

// Put implements blob.Store. It never replaces an object.
func (s *Store) Put(ctx context.Context, name string, body []byte) error {
	if err := blob.CheckPut(name, body); err != nil {
		return err
	}
	_, err := s.call(ctx, http.MethodPut, name, body)
	return err
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, name string) ([]byte, error) {
	if err := blob.CheckName(name); err != nil {
		return nil, err
	}
	return s.call(ctx, http.MethodGet, name, nil)
}

// call makes a request, again where its failure may pass: both kinds may be repeated.
func (s *Store) call(ctx context.Context, method, name string, body []byte) (answer []byte, err error) {
	for try := range tries {
		if try > 0 {
			if err := wait.For(ctx, wait.Backoff(firstWait, maxWait, try)); err != nil {
				return nil, err
			}
		}
		if answer, err = s.once(ctx, method, name, body); !errors.Is(err, workflow.ErrBusy) {
			return answer, err
		}
	}
	return nil, err
}

func (s *Store) once(ctx context.Context, method, name string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	creds, err := s.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("credentials for S3: %w", err)
	}
	var send *awss3.Body
	if method == http.MethodPut {
		sum := sha256.Sum256(body)
		send = &awss3.Body{Reader: bytes.NewReader(body), Size: int64(len(body)), SHA256: sum[:]}
	}
	object := awss3.Object{Endpoint: s.cfg.BaseEndpoint, Region: s.cfg.Region, Bucket: s.bucket, Key: name}
	req, err := object.Request(ctx, creds, time.Now(), send)
	if err != nil {
		return nil, err
	}
	res, err := s.cfg.HTTPClient.Do(req)
	if err != nil {
		return nil, passing(name, err.Error())
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode == http.StatusOK:
		got, err := io.ReadAll(io.LimitReader(res.Body, blob.Max+1))
		if err != nil {
			return nil, passing(name, err.Error())
		}
		if len(got) > blob.Max {
			return nil, fmt.Errorf("the object %s is not a blob: it has more than %d bytes", name, blob.Max)
		}
		return got, nil
	case res.StatusCode == http.StatusPreconditionFailed: // it is there
		return nil, nil
	}
	code, message := s3error.Read(res)
	said := text.Cut(cmp.Or(code, res.Status)+": "+message, 300)
	switch {
	case code == "NoSuchKey":
		return nil, workflow.Refuse(workflow.ErrNotFound, "", "there is no blob %s", name)
	case res.StatusCode >= http.StatusInternalServerError, res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusConflict,
		code == "RequestTimeout", code == "ExpiredToken":
		return nil, passing(name, said)
	}
	return nil, fmt.Errorf("%s of the object %s in the bucket %s: %s", method, name, s.bucket, said)
}

func passing(name, why string) error {
	return &workflow.Error{Kind: workflow.ErrBusy, Message: fmt.Sprintf("S3 did not answer for %s; try again: %s", name, why), RetryAfter: time.Second}
}
