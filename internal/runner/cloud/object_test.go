package cloud

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

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
