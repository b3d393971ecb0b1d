package sigv4

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Algorithm is the only one that is spoken here.
const Algorithm = "AWS4-HMAC-SHA256"

// Scope is where and when a signature counts.
type Scope struct {
	Date    string // YYYYMMDD
	Region  string
	Service string // the signing name
}

func (s Scope) String() string { return s.Date + "/" + s.Region + "/" + s.Service + "/aws4_request" }

// Authorization is a parsed Authorization header.
type Authorization struct {
	AccessKeyID   string
	Scope         Scope
	SignedHeaders []string // lower case, sorted
	Signature     []byte
}

// incomplete says what is wrong with a signature that cannot even be checked, in AWS's words.
func incomplete(format string, args ...any) error {
	return &wire.Error{Status: http.StatusForbidden, Code: "IncompleteSignatureException", QueryCode: "IncompleteSignature", Message: fmt.Sprintf(format, args...)}
}

// ParseAuthorization reads an Authorization header of AWS4-HMAC-SHA256. Its errors are *wire.Error and
// quote nothing but names.
func ParseAuthorization(header string) (Authorization, error) {
	var a Authorization
	rest, ok := strings.CutPrefix(header, Algorithm+" ")
	if !ok {
		return a, incomplete("Unsupported AWS 'algorithm': the Authorization header begins with %s", Algorithm)
	}
	found := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return a, incomplete("Authorization header has a parameter without '='")
		}
		if _, twice := found[name]; twice {
			return a, incomplete("Authorization header has '%s' twice", name)
		}
		found[name] = value
	}
	for _, name := range []string{"Credential", "SignedHeaders", "Signature"} {
		if found[name] == "" {
			return a, incomplete("Authorization header requires '%s' parameter.", name)
		}
	}
	scope := strings.Split(found["Credential"], "/")
	if len(scope) != 5 || scope[4] != "aws4_request" || slices.Contains(scope, "") {
		return a, incomplete("Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term")
	}
	a.AccessKeyID = scope[0]
	a.Scope = Scope{Date: scope[1], Region: scope[2], Service: scope[3]}
	a.SignedHeaders = strings.Split(found["SignedHeaders"], ";")
	if !slices.IsSorted(a.SignedHeaders) || slices.Contains(a.SignedHeaders, "") || strings.ToLower(found["SignedHeaders"]) != found["SignedHeaders"] {
		return a, incomplete("SignedHeaders must be lower case, sorted and not empty")
	}
	signature, err := hex.DecodeString(found["Signature"])
	if err != nil || len(signature) != 32 {
		return a, incomplete("Signature must be 64 hexadecimal digits")
	}
	a.Signature = signature
	return a, nil
}
