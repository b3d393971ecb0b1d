package awssm

import (
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Ref is a parsed reference. It is written as the ARN of a secret or of a parameter, which may be followed by the
// wanted part, in one of these forms:
//
//	arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME#KEY
//	arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME:KEY:STAGE:VERSION
//	arn:aws:ssm:REGION:ACCOUNT:parameter/NAME#KEY
//
// The second is that of ECS task definitions (ECS developer guide, "Pass Secrets Manager secrets through
// Amazon ECS environment variables"); its parts may be empty, and empty ones at the end left out.
type Ref struct {
	ARN       string // of the secret or parameter
	Parameter bool   // it is that of a parameter
	Region    string

	Key     string // of the JSON document that it holds; "" means the whole
	Stage   string // staging label; "" means AWSCURRENT where Version is empty too
	Version string // id of a version
}

// maxRef is the limit for a reference in a workspace.
const maxRef = 2048

// ParseRef reads a reference. An error does not repeat all of it, because it may be a secret that was put there by
// mistake.
func ParseRef(s string) (Ref, error) {
	bad := func(why string) (Ref, error) {
		return Ref{}, workflow.Refuse(workflow.ErrInvalid, "secrets", "a reference to AWS is written arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME or arn:aws:ssm:REGION:ACCOUNT:parameter/NAME, optionally with #KEY behind it, the key of a JSON document; this one %s", why)
	}
	if len(s) > maxRef {
		return bad(fmt.Sprintf("has %d bytes, and at most %d are allowed", len(s), maxRef))
	}

	arn, key, hasKey := strings.Cut(s, "#")
	parts := strings.SplitN(arn, ":", 8)
	name, parameter := nameIn(parts)
	if wrong := checkARN(parts, name); wrong != "" {
		return bad(wrong)
	}
	switch {
	case hasKey && key == "":
		return bad("ends with # and names no key")
	case hasKey && len(parts) > 7:
		return bad("names a key in both ways, with # and with a colon")
	}

	if parameter {
		return Ref{ARN: arn, Parameter: true, Region: parts[3], Key: key}, nil
	}
	ref := Ref{ARN: strings.Join(parts[:7], ":"), Region: parts[3], Key: key}
	if len(parts) > 7 {
		rest := strings.Split(parts[7], ":")
		if len(rest) > 3 {
			return bad("has more parts behind its name than KEY:STAGE:VERSION")
		}
		rest = append(rest, "", "")
		ref.Key, ref.Stage, ref.Version = rest[0], rest[1], rest[2]
	}
	return ref, nil
}

// nameIn returns the name in the parts of an ARN, and whether it is that of a parameter; "" if the ARN has neither a
// secret nor a parameter.
func nameIn(parts []string) (name string, parameter bool) {
	switch {
	case len(parts) == 6 && parts[2] == "ssm" && strings.HasPrefix(parts[5], "parameter/"):
		return strings.CutPrefix(parts[5], "parameter/")
	case len(parts) > 6 && parts[2] == "secretsmanager" && parts[5] == "secret":
		return parts[6], false
	}
	return "", false
}

// checkARN says what is wrong with the parts of an ARN; "" if nothing is.
func checkARN(parts []string, name string) string {
	switch {
	case name == "" || parts[0] != "arn" || !strings.HasPrefix(parts[1], "aws"):
		return "is not the ARN of a secret or of a parameter"
	case !only(parts[1], "-") || !only(parts[3], "-"):
		return "has a malformed partition or region"
	case len(parts[4]) != 12 || strings.Trim(parts[4], "0123456789") != "":
		return "has an account that is not a number of 12 digits"
	case !only(name, "/_+=.@-!"):
		return "has a malformed name"
	}
	return ""
}

// only reports whether a text has letters and digits only, and those in also.
func only(s, also string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && strings.IndexByte(also, c) < 0 {
			return false
		}
	}
	return s != ""
}

// short names the secret or parameter in a sentence.
func (r Ref) short() string { return quote(r.ARN) }

func quote(s string) string { return text.Quote(s, 200) }
