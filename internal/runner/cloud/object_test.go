package cloud

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestObjectAddress_IsThatOfTheRegion(t *testing.T) {
	other := "http://localhost:4566/x"
	for want, in := range map[string]struct {
		endpoint            *string
		region, bucket, key string
	}{
		"https://code.s3.eu-west-1.amazonaws.com/a/b%20c.tgz": {nil, "eu-west-1", "code", "a/b c.tgz"},
		"https://s3.eu-west-1.amazonaws.com/my.code/a":        {nil, "eu-west-1", "my.code", "a"},
		"https://code.s3.cn-north-1.amazonaws.com.cn/a":       {nil, "cn-north-1", "code", "a"},
		"http://localhost:4566/x/code/a":                      {&other, "eu-west-1", "code", "a"},
	} {
		if got, err := objectAddress(in.endpoint, in.region, in.bucket, in.key); err != nil || got.String() != want {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
}

func TestObjectRefused_SaysWhatToDo(t *testing.T) {
	answer := func(status int, region, code string) *http.Response {
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Header: http.Header{"X-Amz-Bucket-Region": {region}},
			Body: io.NopCloser(strings.NewReader("<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>what it says</Message></Error>")),
		}
	}
	for want, res := range map[string]*http.Response{
		"set source.archive.region":         answer(http.StatusMovedPermanently, "eu-west-2", "PermanentRedirect"),
		"no such object (NoSuchBucket)":     answer(http.StatusNotFound, "", "NoSuchBucket"),
		"needs s3:GetObject":                answer(http.StatusForbidden, "eu-west-1", "AccessDenied"),
		"S3 answers Service Unavailable: S": answer(http.StatusServiceUnavailable, "", "SlowDown"),
	} {
		if err := objectRefused(res, "s3://code/a", "eu-west-1"); !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
