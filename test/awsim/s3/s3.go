// Package s3 is a fake Amazon S3 with what the states of engines need of it: buckets and whole objects, addressed by
// path, conditional creation, checked digests, requests that are signed in their address. What it does not know (uploads
// in parts, versions, other conditions, any other query parameter or x-amz header) it refuses by name.
//
// Sources: the S3 API reference and user guide.
package s3

import (
	"context"
	"crypto/md5" //nolint:gosec // what an ETag is made of
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Service is S3. Its fields are set before it is used.
type Service struct {
	// Now is the clock of Last-Modified; nil means time.Now.
	Now func() time.Time

	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	objects map[string]object
	deleted map[string]int // how often an object was deleted, by key
}

type object struct {
	body     []byte
	header   http.Header // with which it is answered
	modified time.Time
}

// Operations implements awsim.Service.
func (s *Service) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{
		"CreateBucket":  s.handle(s.createBucket),
		"HeadBucket":    s.handle(s.headBucket),
		"ListObjectsV2": s.handle(s.listObjects),
		"PutObject":     s.handle(s.putObject),
		"GetObject":     s.handle(s.getObject),
		"HeadObject":    s.handle(s.getObject),
		"DeleteObject":  s.handle(s.deleteObject),
	}
}

// output is an answer, with which a protocol has nothing more to do.
type output struct {
	status int // 0 means 200
	header http.Header
	body   any // bytes, or what is marshalled as XML
}

// handle decodes an input, and finds its bucket; a bucket that is nil is to be made.
func (s *Service) handle(do func(*bucket, input) (output, error)) wire.Handler {
	return func(_ context.Context, c wire.Call) (any, error) {
		in, err := wire.Decode[input](c)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		b := s.buckets[in.Bucket]
		if b == nil && c.Operation != "CreateBucket" {
			return nil, refuse(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist: %s", in.Bucket)
		}
		return do(b, in)
	}
}

func refuse(status int, code, format string, args ...any) error {
	return &wire.Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// createBucket makes a bucket. Who has it already in us-east-1 is not refused.
func (s *Service) createBucket(b *bucket, in input) (output, error) {
	switch {
	case !bucketName.MatchString(in.Bucket):
		return output{}, refuse(http.StatusBadRequest, "InvalidBucketName", "The specified bucket is not valid: %s", in.Bucket)
	case len(in.Body) > 0:
		return output{}, refuse(http.StatusNotImplemented, "NotImplemented", "A configuration of a bucket is not known here.")
	case b == nil:
		if s.buckets == nil {
			s.buckets = map[string]*bucket{}
		}
		s.buckets[in.Bucket] = &bucket{objects: map[string]object{}, deleted: map[string]int{}}
	}
	return output{header: http.Header{"Location": {"/" + in.Bucket}}}, nil
}

func (s *Service) headBucket(*bucket, input) (output, error) {
	return output{header: http.Header{"X-Amz-Bucket-Region": {wire.Region}}}, nil
}

func (s *Service) putObject(b *bucket, in input) (output, error) {
	if condition := in.Header.Get("If-None-Match"); condition != "" {
		_, exists := b.objects[in.Key]
		switch {
		case condition != "*":
			return output{}, refuse(http.StatusNotImplemented, "NotImplemented", "If-None-Match: %s is not known here.", condition)
		case exists:
			return output{}, refuse(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
		case b.deleted[in.Key] != in.Deleted:
			// (User guide, "Conditional write behavior": a delete came to its end before the write did.)
			return output{}, refuse(http.StatusConflict, "ConditionalRequestConflict", "The conditional request cannot succeed due to a conflicting operation against this resource.")
		}
	}
	header, err := checksums(in)
	if err != nil {
		return output{}, err
	}
	encryption := in.Header.Get(sse)
	switch key := in.Header.Get(sseKey); {
	case encryption == "" && key == "":
		encryption = "AES256"
	case encryption == "AES256" && key == "":
	case encryption == "aws:kms":
		header.Set(sseKey, key)
	default:
		return output{}, refuse(http.StatusBadRequest, "InvalidArgument", "The encryption %q with the key %q is not known here.", encryption, key)
	}
	header.Set(sse, encryption)
	sum := md5.Sum(append(in.Body, header.Get(sseKey)...)) //nolint:gosec // see above; it is not that of the body where KMS encrypts
	header.Set("Etag", `"`+hex.EncodeToString(sum[:])+`"`)
	answer := header.Clone()
	header.Set("Content-Type", in.Header.Get("Content-Type"))
	b.objects[in.Key] = object{in.Body, header, s.now()}
	return output{header: answer}, nil
}

// getObject is also HeadObject, whose body is not sent.
func (s *Service) getObject(b *bucket, in input) (output, error) {
	o, ok := b.objects[in.Key]
	if !ok {
		return output{}, refuse(http.StatusNotFound, "NoSuchKey", "The specified key does not exist: %s", in.Key)
	}
	out := output{header: o.header.Clone(), body: o.body}
	out.header.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	out.header.Set("Accept-Ranges", "bytes")
	span := in.Header.Get("Range")
	if in.Header.Get("X-Amz-Checksum-Mode") != "ENABLED" || span != "" {
		maps.DeleteFunc(out.header, func(name string, _ []string) bool { return strings.HasPrefix(name, checksum) })
	}
	if span == "" {
		return out, nil
	}
	var first, last int
	if n, err := fmt.Sscanf(span, "bytes=%d-%d", &first, &last); n != 2 || err != nil || first < 0 || last < first {
		return output{}, unknown("The range %s", span)
	}
	if first >= len(o.body) {
		return output{}, refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable")
	}
	last = min(last, len(o.body)-1)
	out.status, out.body = http.StatusPartialContent, o.body[first:last+1]
	out.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(o.body)))
	return out, nil
}

func (s *Service) deleteObject(b *bucket, in input) (output, error) {
	if _, ok := b.objects[in.Key]; ok {
		delete(b.objects, in.Key)
		b.deleted[in.Key]++
	}
	return output{status: http.StatusNoContent}, nil
}

type (
	content struct {
		Key, LastModified, ETag string
		Size                    int
		StorageClass            string
	}
	commonPrefix struct{ Prefix string }
	list         struct {
		XMLName                 xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		Name, Prefix, Delimiter string
		EncodingType            string `xml:",omitempty"`
		KeyCount, MaxKeys       int
		IsTruncated             bool
		ContinuationToken       string `xml:",omitempty"`
		NextContinuationToken   string `xml:",omitempty"`
		Contents                []content
		CommonPrefixes          []commonPrefix
	}
)

// maxKeys is how many one page has at most.
const maxKeys = 1000

func (s *Service) listObjects(b *bucket, in input) (output, error) {
	q := in.Query
	out := list{
		Name: in.Bucket, Prefix: q.Get("prefix"), Delimiter: q.Get("delimiter"), EncodingType: q.Get("encoding-type"),
		MaxKeys: maxKeys, ContinuationToken: q.Get("continuation-token"),
	}
	encoded := func(key string) string { return key }
	switch out.EncodingType {
	case "":
	case "url":
		encoded = func(key string) string {
			return strings.NewReplacer("%2F", "/", "+", "%20").Replace(url.QueryEscape(key))
		}
	default:
		return output{}, refuse(http.StatusBadRequest, "InvalidArgument", "Invalid Encoding Method specified in Request")
	}
	if text := q.Get("max-keys"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return output{}, refuse(http.StatusBadRequest, "InvalidArgument", "max-keys is %q", text)
		}
		out.MaxKeys = min(n, maxKeys)
	}
	after, err := base64.URLEncoding.DecodeString(out.ContinuationToken)
	if err != nil {
		return output{}, refuse(http.StatusBadRequest, "InvalidArgument", "The continuation token provided is incorrect")
	}
	last := string(after) // the key or common prefix that came last
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		rest, ok := strings.CutPrefix(key, out.Prefix)
		name := key
		if i := strings.Index(rest, out.Delimiter); ok && out.Delimiter != "" && i >= 0 {
			name = out.Prefix + rest[:i+len(out.Delimiter)]
		}
		if !ok || name <= last {
			continue
		}
		if out.KeyCount == out.MaxKeys {
			out.IsTruncated = out.MaxKeys > 0
			break
		}
		out.KeyCount++
		last = name
		if name != key {
			out.CommonPrefixes = append(out.CommonPrefixes, commonPrefix{encoded(name)})
			continue
		}
		o := b.objects[key]
		out.Contents = append(out.Contents, content{encoded(key), o.modified.UTC().Format("2006-01-02T15:04:05.000Z"), o.header.Get("Etag"), len(o.body), "STANDARD"})
	}
	if out.IsTruncated {
		out.NextContinuationToken = base64.URLEncoding.EncodeToString([]byte(last))
	}
	out.Prefix, out.Delimiter = encoded(out.Prefix), encoded(out.Delimiter)
	return output{body: out}, nil
}

func (s *Service) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}
