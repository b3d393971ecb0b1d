// Package s3error reads the error answers of S3. It is apart from awss3, because a function that only signs addresses
// must not pay for XML at its start.
package s3error

import (
	"encoding/xml"
	"io"
	"net/http"
)

// Read returns the code and the message of an answer that is an error. Both are empty if it cannot be read.
func Read(res *http.Response) (code, message string) {
	var said struct {
		Code    string
		Message string
	}
	_ = xml.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&said) // an answer that cannot be read says nothing
	return said.Code, said.Message
}
