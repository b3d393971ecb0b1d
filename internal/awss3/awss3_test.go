package awss3_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/internal/awss3"
)

func TestAddress_IsThatOfTheRegion(t *testing.T) {
	other := "http://localhost:4566/x"
	for want, in := range map[string]struct {
		endpoint            *string
		region, bucket, key string
	}{
		"https://code.s3.eu-west-1.amazonaws.com/a/b%20c.tgz":            {nil, "eu-west-1", "code", "a/b c.tgz"},
		"https://code.s3.eu-west-1.amazonaws.com/a%2Bb%3D%40%2C~/%C3%A4": {nil, "eu-west-1", "code", "a+b=@,~/ä"},
		"https://s3.eu-west-1.amazonaws.com/my.code/a":                   {nil, "eu-west-1", "my.code", "a"},
		"https://code.s3.cn-north-1.amazonaws.com.cn/a":                  {nil, "cn-north-1", "code", "a"},
		"http://localhost:4566/x/code/a":                                 {&other, "eu-west-1", "code", "a"},
	} {
		o := awss3.Object{Endpoint: in.endpoint, Region: in.region, Bucket: in.bucket, Key: in.key}
		got, err := o.Request(t.Context(), aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "key"}, time.Now(), nil)
		if err != nil || got.URL.String() != want {
			t.Errorf("got %v, %v, want %s", got.URL, err, want)
		}
	}
}
