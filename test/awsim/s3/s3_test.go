package s3_test

import (
	"context"
	"crypto/md5" //nolint:gosec // what an ETag is made of
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
	"github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// fixture asks one S3. Its paths begin with a bucket.
type fixture struct {
	*testing.T
	aws.Config
	server *awsim.Server // nil of moto
}

func start(t *testing.T) fixture {
	table := sigv4.NewTable(nil)
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"s3": &s3.Service{}}})
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	return fixture{t, awsim.ClientConfig(listener.URL, table.User("ann")), server}
}

type answer struct {
	status int
	header http.Header
	body   string
}

// code is that of an error.
func (a answer) code() string {
	var e struct{ Code string }
	if xml.Unmarshal([]byte(a.body), &e) != nil {
		return ""
	}
	return e.Code
}

func (f fixture) ask(method, path, body string, header ...string) answer {
	f.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, aws.ToString(f.BaseEndpoint)+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := awsim.SignedClient(f.Config, "s3").Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// wants asks, and wants a status, and the code of an error if it is not "".
func (f fixture) wants(status int, code, method, path, body string, header ...string) answer {
	f.Helper()
	got := f.ask(method, path, body, header...)
	if got.status != status || got.code() != code {
		f.Errorf("%s %s %v: got %d %s, want %d %s", method, path, header, got.status, got.body, status, code)
	}
	return got
}

// What both we and moto say of buckets and objects.
func TestObjects_AsMotoHasThem(t *testing.T) {
	t.Run("ours", func(t *testing.T) { objects(start(t)) })
	t.Run("moto", func(t *testing.T) {
		if testing.Short() {
			t.Skip("skipped by -short: it starts moto_server")
		}
		objects(fixture{t, moto.Start(t), nil})
	})
}

func objects(f fixture) {
	f.wants(404, "", "HEAD", "/states", "")
	f.wants(404, "NoSuchBucket", "PUT", "/states/a", "one")
	f.wants(200, "", "PUT", "/states", "")
	f.wants(200, "", "PUT", "/states", "")
	f.wants(200, "", "HEAD", "/states", "")

	const odd = "/states/org/w%20s/%C3%A4%2B%24%281%29/terraform.tfstate"
	f.wants(404, "NoSuchKey", "GET", odd, "")
	f.wants(404, "", "HEAD", odd, "")
	f.wants(200, "", "PUT", odd, "one", "If-None-Match", "*", "Content-Type", "application/json")
	f.wants(412, "PreconditionFailed", "PUT", odd, "two", "If-None-Match", "*")
	etag := fmt.Sprintf(`"%x"`, md5.Sum([]byte("one"))) //nolint:gosec // see above
	if got := f.wants(200, "", "GET", odd, ""); got.body != "one" || got.header.Get("Etag") != etag || got.header.Get("Content-Type") != "application/json" {
		f.Errorf("got %+v, want what was put first, with the ETag %s", got, etag)
	}
	if got := f.wants(200, "", "HEAD", odd, ""); got.body != "" || got.header.Get("Content-Length") != "3" || got.header.Get("Last-Modified") == "" {
		f.Errorf("HEAD: got %+v", got)
	}
	f.wants(200, "", "PUT", odd, "three")
	if got := f.wants(206, "", "GET", odd, "", "Range", "bytes=1-9"); got.body != "hree" || got.header.Get("Content-Range") != "bytes 1-4/5" {
		f.Errorf("got %+v, want what is there of the range", got)
	}
	f.wants(416, "InvalidRange", "GET", odd, "", "Range", "bytes=5-9")
	f.wants(204, "", "DELETE", odd, "")
	f.wants(204, "", "DELETE", odd, "")
	f.wants(200, "", "PUT", odd, "four", "If-None-Match", "*")

	sum := md5.Sum([]byte("body")) //nolint:gosec // see above
	f.wants(200, "", "PUT", "/states/md5", "body", "Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	f.wants(200, "", "PUT", "/states/crc", "123456789", "X-Amz-Checksum-Crc32", "y/Q5Jg==", "X-Amz-Sdk-Checksum-Algorithm", "CRC32")
	if got := f.ask("GET", "/states/crc", "", "X-Amz-Checksum-Mode", "ENABLED"); got.header.Get("X-Amz-Checksum-Crc32") != "y/Q5Jg==" {
		f.Errorf("got %v, want the checksum", got.header)
	}
	chunked(f, "123456789", "y/Q5Jg==", 200, "")
	if got := f.ask("GET", "/states/chunked", ""); got.body != "123456789" || got.header.Get("Content-Encoding") != "" {
		f.Errorf("got %+v, want what the chunks held", got)
	}

	for _, key := range []string{"a/1", "a/2", "b/1", "c d"} {
		f.wants(200, "", "PUT", "/states/list/"+strings.ReplaceAll(key, " ", "%20"), key)
	}
	for query, want := range map[string]string{
		"prefix=list/":                   "list/a/1 list/a/2 list/b/1 list/c d | 4 false",
		"prefix=list/&encoding-type=url": "list/a/1 list/a/2 list/b/1 list/c%20d | 4 false",
		"prefix=list/&delimiter=/":       "list/c d | list/a/ list/b/ 3 false",
		"prefix=list/a&max-keys=1":       "list/a/1 | 1 true",
		"prefix=none":                    "| 0 false",
	} {
		if got := f.list(query); got.text() != want {
			f.Errorf("%s: got %s, want %s", query, got.text(), want)
		}
	}
	var pages []string
	for token := ""; ; {
		page := f.list("prefix=list/&delimiter=/&max-keys=1" + token)
		pages = append(pages, page.text())
		if !page.IsTruncated || len(pages) > 3 {
			break
		}
		token = "&continuation-token=" + page.NextContinuationToken
	}
	if got, want := strings.Join(pages, ", "), "| list/a/ 1 true, | list/b/ 1 true, list/c d | 1 false"; got != want {
		f.Errorf("got the pages %s, want %s", got, want)
	}
}

// chunked puts a body as clients of https do, with its CRC32 behind it.
func chunked(f fixture, body, crc string, status int, code string) {
	f.Helper()
	text := fmt.Sprintf("%x\r\n%s\r\n0\r\nx-amz-checksum-crc32:%s\r\n\r\n", len(body), body, crc)
	f.wants(status, code, "PUT", "/states/chunked", text, "X-Amz-Content-Sha256", sigv4.UnsignedTrailer, "Content-Encoding", "aws-chunked",
		"X-Amz-Decoded-Content-Length", fmt.Sprint(len(body)), "X-Amz-Trailer", "x-amz-checksum-crc32", "X-Amz-Sdk-Checksum-Algorithm", "CRC32")
}

type page struct {
	Contents              []struct{ Key string }
	CommonPrefixes        []struct{ Prefix string }
	KeyCount              int
	IsTruncated           bool
	NextContinuationToken string
}

func (p page) text() string {
	var words []string
	for _, c := range p.Contents {
		words = append(words, c.Key)
	}
	words = append(words, "|")
	for _, c := range p.CommonPrefixes {
		words = append(words, c.Prefix)
	}
	return strings.Join(append(words, fmt.Sprint(p.KeyCount, p.IsTruncated)), " ")
}

func (f fixture) list(query string) (p page) {
	f.Helper()
	if err := xml.Unmarshal([]byte(f.wants(200, "", "GET", "/states?list-type=2&"+query, "").body), &p); err != nil {
		f.Fatal(err)
	}
	return p
}

// What moto lets pass.
func TestPut_HoldsTheBodyAgainstItsDigests(t *testing.T) {
	f := start(t)
	f.wants(200, "", "PUT", "/states", "")
	put := func(code string, header ...string) {
		t.Helper()
		f.wants(400, code, "PUT", "/states/a", "123456789", header...)
	}
	put("BadDigest", "Content-Md5", "AAAAAAAAAAAAAAAAAAAAAA==")
	put("BadDigest", "X-Amz-Checksum-Crc32", "AAAAAA==")
	put("BadDigest", "X-Amz-Checksum-Sha256", "y/Q5Jg==")
	put("InvalidRequest", "X-Amz-Checksum-Crc32", "y/Q5Jg==", "X-Amz-Checksum-Crc32c", "4waSgw==")
	put("InvalidRequest", "X-Amz-Sdk-Checksum-Algorithm", "CRC32")
	put("IncompleteBody", "X-Amz-Content-Sha256", sigv4.UnsignedTrailer)
	put("InvalidArgument", "X-Amz-Server-Side-Encryption", "rot13")
	chunked(f, "123456789", "AAAAAA==", 400, "BadDigest")
	// The check values of the algorithms.
	for algorithm, sum := range map[string]string{"Crc32c": "4waSgw==", "Crc64nvme": "rosUhgp5mIg=", "Sha1": "98O8HYCOBHMq32eZZczDTKeuNEE="} {
		f.wants(200, "", "PUT", "/states/a", "123456789", "X-Amz-Checksum-"+algorithm, sum)
	}
	f.wants(200, "", "PUT", "/states/a", "123456789", "X-Amz-Server-Side-Encryption", "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "arn:key")
	if got := f.ask("GET", "/states/a", "", "X-Amz-Checksum-Mode", "ENABLED"); got.header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id") != "arn:key" ||
		got.header.Get("X-Amz-Checksum-Crc64nvme") != "rosUhgp5mIg=" || got.header.Get("Etag") == `"25f9e794323b453885f5181f1b624d0b"` {
		t.Errorf("got %v", got.header)
	}
}

// A delete that comes to its end while a conditional write is under way.
func TestPut_ConflictsWithADeleteMeanwhile(t *testing.T) {
	f := start(t)
	f.wants(200, "", "PUT", "/states", "")
	f.wants(200, "", "PUT", "/states/lock", "held")
	f.server.Inject(wire.Fault{Operation: "PutObject", Times: 1, Before: func(wire.Call) error {
		f.wants(204, "", "DELETE", "/states/lock", "")
		return nil
	}})
	f.wants(409, "ConditionalRequestConflict", "PUT", "/states/lock", "mine", "If-None-Match", "*")
	f.wants(200, "", "PUT", "/states/lock", "mine", "If-None-Match", "*")
}

func TestServer_RefusesWhatItDoesNotKnow(t *testing.T) {
	f := start(t)
	f.wants(200, "", "PUT", "/states", "")
	f.wants(200, "", "PUT", "/states/a", "one")
	for _, one := range [][]string{
		{"GET", "/"}, {"DELETE", "/states"}, {"GET", "/states"}, {"GET", "/states?list-type=1"}, {"GET", "/states?list-type=2&start-after=a"},
		{"GET", "/states?versioning"}, {"GET", "/states/a?versionId=1"}, {"POST", "/states/a?uploads"}, {"PUT", "/states/a?partNumber=1&uploadId=u"},
		{"PUT", "/states/a?x-id=GetObject"}, {"PUT", "/states/a", "If-Match", `"x"`}, {"PUT", "/states/a", "If-None-Match", `"x"`},
		{"PUT", "/states/a", "X-Amz-Acl", "public-read"}, {"PUT", "/states/a", "X-Amz-Meta-A", "b"}, {"PUT", "/states/a", "X-Amz-Copy-Source", "b/c"},
		{"PUT", "/states/a", "Cache-Control", "no-store"}, {"GET", "/states/a", "Range", "bytes=-1"}, {"GET", "/states/a", "If-None-Match", "*"},
		{"PUT", "/states/a", "X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"},
	} {
		f.wants(501, "NotImplemented", one[0], one[1], "", one[2:]...)
	}
	f.wants(400, "InvalidBucketName", "PUT", "/St", "")
}

func TestServer_ChecksSignatures(t *testing.T) {
	f := start(t)
	f.wants(200, "", "PUT", "/states", "")
	f.wants(200, "", "PUT", "/states/a", "body", "X-Amz-Content-Sha256", sigv4.UnsignedPayload)
	f.wants(400, "XAmzContentSHA256Mismatch", "PUT", "/states/a", "body", "X-Amz-Content-Sha256", strings.Repeat("0", 64))
	f.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIANOBODY", SecretAccessKey: "secret"}, nil
	})
	f.wants(403, "InvalidAccessKeyId", "GET", "/states/a", "")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, aws.ToString(f.BaseEndpoint)+"/states/a", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20300101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature="+strings.Repeat("0", 64))
	resp, err := f.HTTPClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("got %s for a made-up signature", resp.Status)
	}
}
