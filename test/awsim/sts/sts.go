// Package sts is a fake AWS Security Token Service: AssumeRole against a table of trust policies, with
// external ids, session tags and the hour that ends role chaining; its credentials count in the table of
// package sigv4, so that all other services know them. GetWebIdentityToken says which role the caller has; a session's
// ARN does not show the role's path, so sub has none.
//
// Sources: the STS API reference; the IAM user guide, "Roles terms and concepts" (role chaining),
// "Pass session tags" and "Outbound identity federation".
package sts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// chained is the longest session of a role that is assumed by a role.
const chained = time.Hour

// Trust is the trust policy of a role, and its longest session.
type Trust struct {
	// Principals may assume the role: ARNs of users, roles or sessions of roles, or an account as
	// arn:aws:iam::ACCOUNT:root. A role is the one that has the ARN when the policy is set: as IAM, STS keeps its id.
	Principals []string
	// Policy decides in place of Principals, ExternalID, Tags and AllowTags, if there is one.
	Policy []templates.Statement
	// ExternalID must be named by the caller; "" asks for none.
	ExternalID string
	// Tags must be among the session's tags, with these values.
	Tags map[string]string
	// AllowTags lets callers set session tags (sts:TagSession); without it, a session with tags is denied.
	AllowTags bool
	// MaxSession is the longest session; 0 means an hour.
	MaxSession time.Duration
}

// Session is one role that was assumed.
type Session struct {
	Role       string // ARN
	Name       string
	ExternalID string
	Tags       map[string]string // with those that the calling session passed on
	Transitive []string          // keys of the tags that are passed on
	Duration   time.Duration
	Caller     wire.Identity
	Identity   wire.Identity // of the session
	Time       time.Time
}

// Service is STS. Its exported fields are set before it is used.
type Service struct {
	// Credentials is the server's table. Required.
	Credentials *sigv4.Table
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Sign signs the claims of a web identity token as the account's issuer, and adds iss. Nil means that outbound
	// identity federation is not enabled, as it is not in a new account.
	Sign func(claims map[string]any) string

	mu       sync.Mutex
	trust    map[string]Trust // by role ARN
	sessions []Session
}

// Trusts sets the trust policy of a role, in place of an older one.
func (s *Service) Trusts(role string, t Trust) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trust == nil {
		s.trust = map[string]Trust{}
	}
	t.Principals = slices.Clone(t.Principals)
	for i, p := range t.Principals {
		if strings.Contains(p, ":role/") {
			t.Principals[i] = s.Credentials.RoleID(p)
		}
	}
	s.trust[role] = t
}

// Sessions returns every role that was assumed, in order.
func (s *Service) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sessions)
}

// SessionOf finds the session that an identity is, such as one that called another service.
func (s *Service) SessionOf(who wire.Identity) (Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessionOf(who)
}

func (s *Service) sessionOf(who wire.Identity) (Session, bool) {
	for _, one := range s.sessions {
		if one.Identity.AccessKeyID == who.AccessKeyID {
			return one, true
		}
	}
	return Session{}, false
}

// Protocol implements what the server asks: awsQuery.
func (*Service) Protocol() wire.Protocol {
	return wire.Query{Namespace: "https://sts.amazonaws.com/doc/2011-06-15/"}
}

// Operations implements awsim.Service.
func (s *Service) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{"AssumeRole": s.assumeRole, "GetCallerIdentity": s.getCallerIdentity, "GetWebIdentityToken": s.getWebIdentityToken}
}

func (s *Service) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

type identityOutput struct {
	UserID  string `xml:"UserId"`
	Account string
	Arn     string
}

func (s *Service) getCallerIdentity(_ context.Context, c wire.Call) (any, error) {
	if _, err := wire.Decode[struct{}](c); err != nil {
		return nil, err
	}
	return identityOutput{UserID: userID(c.Caller), Account: c.Caller.Account, Arn: c.Caller.ARN}, nil
}

type webIdentityInput struct {
	Audience         []string
	SigningAlgorithm string
	DurationSeconds  string
}

type webIdentityOutput struct {
	WebIdentityToken string
	Expiration       string
}

func (s *Service) getWebIdentityToken(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[webIdentityInput](c)
	if err != nil {
		return nil, err
	}
	seconds := 300
	if in.DurationSeconds != "" {
		if seconds, err = strconv.Atoi(in.DurationSeconds); err != nil {
			return nil, failure("MalformedInput", "DurationSeconds is not a number")
		}
	}
	switch {
	case len(in.Audience) == 0 || len(in.Audience) > 10:
		return nil, failure("ValidationError", "1 validation error detected: Value at 'audience' failed to satisfy constraint: Member must have length between 1 and 10")
	case in.SigningAlgorithm != "RS256" && in.SigningAlgorithm != "ES384":
		return nil, failure("ValidationError", "1 validation error detected: Value '%s' at 'signingAlgorithm' failed to satisfy constraint", in.SigningAlgorithm)
	case seconds < 60 || seconds > 3600:
		return nil, failure("ValidationError", "1 validation error detected: Value '%d' at 'durationSeconds' failed to satisfy constraint: Member must have value between 60 and 3600", seconds)
	case s.Sign == nil:
		return nil, failure("OutboundWebIdentityFederationDisabledException", "Outbound web identity federation is not enabled for this account")
	}
	subject := c.Caller.ARN
	if _, session, ok := strings.Cut(subject, ":assumed-role/"); ok {
		role, _, _ := strings.Cut(session, "/")
		subject = "arn:aws:iam::" + c.Caller.Account + ":role/" + role
	}
	now := s.now()
	ends := now.Add(time.Duration(seconds) * time.Second)
	return webIdentityOutput{
		WebIdentityToken: s.Sign(map[string]any{
			"aud": in.Audience, "sub": subject, "iat": now.Unix(), "exp": ends.Unix(), "jti": idOf(subject) + strconv.FormatInt(now.UnixNano(), 36),
			"https://sts.amazonaws.com/": map[string]any{"aws_account": c.Caller.Account, "principal_id": subject},
		}),
		Expiration: ends.UTC().Format(time.RFC3339),
	}, nil
}

func userID(who wire.Identity) string {
	if who.RoleID != "" {
		return who.RoleID + ":" + who.ARN[strings.LastIndex(who.ARN, "/")+1:]
	}
	return "AIDA" + idOf(who.ARN)
}

// idOf makes the letters of an id of a name: the same ones each time.
func idOf(name string) string {
	clean := regexp.MustCompile(`[^A-Z0-9]`).ReplaceAllString(strings.ToUpper(name[strings.LastIndex(name, "/")+1:]), "")
	return (clean + "XXXXXXXXXXXXXXXX")[:16]
}

type assumeInput struct {
	RoleArn           string
	RoleSessionName   string
	ExternalID        string `json:"ExternalId"`
	DurationSeconds   string
	Tags              []struct{ Key, Value string }
	TransitiveTagKeys []string
}

type assumeOutput struct {
	Credentials struct {
		AccessKeyID     string `xml:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
		Expiration      string
	}
	AssumedRoleUser struct {
		AssumedRoleID string `xml:"AssumedRoleId"`
		Arn           string
	}
	PackedPolicySize int
}

func failure(code, format string, args ...any) error {
	return &wire.Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

func denied(c wire.Call, action, role string) error {
	return &wire.Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: fmt.Sprintf("User: %s is not authorized to perform: %s on resource: %s", c.Caller.ARN, action, role)}
}

var (
	roleARN     = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}$`)
	sessionName = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
	externalID  = regexp.MustCompile(`^[\w+=,.@:/-]{2,1000}$`) // 1224 in STS; the most that a pattern counts is 1000
	tagText     = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
)

func (s *Service) assumeRole(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[assumeInput](c)
	if err != nil {
		return nil, err
	}
	seconds := 3600
	if in.DurationSeconds != "" {
		if seconds, err = strconv.Atoi(in.DurationSeconds); err != nil {
			return nil, failure("MalformedInput", "DurationSeconds is not a number")
		}
	}
	switch {
	case !roleARN.MatchString(in.RoleArn):
		return nil, failure("ValidationError", "%s is invalid", in.RoleArn)
	case !sessionName.MatchString(in.RoleSessionName):
		return nil, failure("ValidationError", "1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*", in.RoleSessionName)
	case in.ExternalID != "" && (len(in.ExternalID) > 1224 || !externalID.MatchString(in.ExternalID)):
		return nil, failure("ValidationError", "1 validation error detected: Value at 'externalId' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@:\\/-]*")
	case seconds < 900 || seconds > 43200:
		return nil, failure("ValidationError", "1 validation error detected: Value '%d' at 'durationSeconds' failed to satisfy constraint: Member must have value between 900 and 43200", seconds)
	}
	tags, err := checkTags(in)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, isSession := s.sessionOf(c.Caller)
	isSession = isSession || strings.Contains(c.Caller.ARN, ":assumed-role/")
	passed := map[string]string{}
	for _, key := range before.Transitive {
		if _, ok := tags[key]; ok {
			return nil, failure("InvalidParameterValue", "One of the specified transitive tag keys can't be set because it conflicts with a transitive tag key from the calling session.")
		}
		passed[key] = before.Tags[key]
	}
	trust, ok := s.trust[in.RoleArn]
	if !ok {
		return nil, denied(c, "sts:AssumeRole", in.RoleArn)
	}
	if action := trust.denies(c.Caller, in.ExternalID, tags, passed); action != "" {
		return nil, denied(c, action, in.RoleArn)
	}
	life := time.Duration(seconds) * time.Second
	if longest := max(trust.MaxSession, time.Hour); life > longest {
		return nil, failure("ValidationError", "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	if isSession && life > chained {
		return nil, failure("ValidationError", "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining.")
	}
	maps.Copy(tags, passed)
	got := s.Credentials.Session(in.RoleArn, in.RoleSessionName, life)
	s.sessions = append(s.sessions, Session{
		Role: in.RoleArn, Name: in.RoleSessionName, ExternalID: in.ExternalID, Tags: tags,
		Transitive: append(slices.Clone(before.Transitive), in.TransitiveTagKeys...),
		Duration:   life, Caller: c.Caller, Identity: got.Identity, Time: s.now(),
	})
	var out assumeOutput
	out.Credentials.AccessKeyID, out.Credentials.SecretAccessKey, out.Credentials.SessionToken = got.AccessKeyID, got.SecretAccessKey, got.SessionToken
	out.Credentials.Expiration = got.Expires.UTC().Format(time.RFC3339)
	out.AssumedRoleUser.AssumedRoleID, out.AssumedRoleUser.Arn = userID(got.Identity), got.Identity.ARN
	return out, nil
}

func checkTags(in assumeInput) (map[string]string, error) {
	if len(in.Tags) > 50 {
		return nil, failure("ValidationError", "Member must have length less than or equal to 50")
	}
	tags := map[string]string{}
	seen := map[string]bool{}
	for _, t := range in.Tags {
		if t.Key == "" || len(t.Key) > 128 || len(t.Value) > 256 || !tagText.MatchString(t.Key) || !tagText.MatchString(t.Value) {
			return nil, failure("ValidationError", "The session tag %q has a key or value that is not allowed", t.Key)
		}
		lower := strings.ToLower(t.Key)
		if seen[lower] {
			return nil, failure("InvalidParameterValue", "Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		}
		seen[lower] = true
		tags[t.Key] = t.Value
	}
	for _, key := range in.TransitiveTagKeys {
		if _, ok := tags[key]; !ok {
			return nil, failure("InvalidParameterValue", "The specified transitive tag key must be included in the requested tags.")
		}
	}
	return tags, nil
}

// holds reports whether the tags of a session are as a trust policy wants them.
func holds(tags, passed, wanted map[string]string) bool {
	for key, value := range wanted {
		got, ok := tags[key]
		if !ok {
			got = passed[key]
		}
		if got != value {
			return false
		}
	}
	return true
}

// admits reports whether a caller is one of the principals.
func (t Trust) admits(who wire.Identity) bool {
	return slices.ContainsFunc(t.Principals, func(p string) bool {
		return p == who.ARN || p == "arn:aws:iam::"+who.Account+":root" || p == who.RoleID && p != ""
	})
}

// denies is the action that a caller may not do; "" where it may assume the role with these tags and those that its session
// passes on.
func (t Trust) denies(who wire.Identity, externalID string, tags, passed map[string]string) string {
	if t.Policy == nil {
		switch {
		case !t.admits(who) || t.ExternalID != "" && externalID != t.ExternalID || !holds(tags, passed, t.Tags):
			return "sts:AssumeRole"
		case len(tags) > 0 && !t.AllowTags:
			return "sts:TagSession"
		}
		return ""
	}
	context := map[string]string{}
	if externalID != "" {
		context["sts:externalid"] = externalID
	}
	for k, v := range tags {
		context["aws:requesttag/"+k] = v
	}
	if len(tags) > 0 {
		context["aws:tagkeys"] = strings.Join(slices.Collect(maps.Keys(tags)), ",")
	}
	principal := templates.Principal{ARN: cmp.Or(who.Role, who.ARN), ID: who.RoleID}
	for _, action := range []string{"sts:AssumeRole", "sts:TagSession"} {
		if (action == "sts:AssumeRole" || len(tags) > 0) && !templates.Admits(t.Policy, principal, action, context) {
			return action
		}
	}
	return ""
}
