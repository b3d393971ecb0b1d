package oidc_test

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

const audience = "urn:dayfly:org:default"

// algorithms are those that the issuers of these tests are registered with.
var algorithms = []string{"RS256", "ES256"}

func verifier(t testing.TB, private ...string) *oidc.Verifier {
	t.Helper()
	if private == nil {
		private = []string{"127.0.0.0/8"}
	}
	v, err := oidc.New(oidc.Config{Private: private})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// raw makes a token of parts that no signer would make.
func raw(header, claims string, sign func(text string) []byte) string {
	e := base64.RawURLEncoding.EncodeToString
	text := e([]byte(header)) + "." + e([]byte(claims))
	return text + "." + e(sign(text))
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestVerify_RefusesWhatAnAttackerSends(t *testing.T) {
	p := provider.Start(t, "ES256", "RS256", "ES384")
	stranger := provider.Start(t, "ES256")
	now := time.Now()
	es := func(with map[string]any) string { return p.Token("ES256", with) }
	forUs := map[string]any{"aud": audience}
	with := func(name string, value any) map[string]any { return map[string]any{"aud": audience, name: value} }
	key := p.Key("ES256")
	public, _ := x509.MarshalPKIXPublicKey(&key.Key.(*ecdsa.PrivateKey).PublicKey)
	signed := func(h map[string]any) string { return provider.Sign(key, h, p.Claims(forUs)) }
	good := es(forUs)
	parts := strings.Split(good, ".")
	other := key
	other.KeyID = "nobody"
	strangers := stranger.Key("ES256")
	for name, c := range map[string]struct{ token, want string }{
		"good":              {good, ""},
		"another algorithm": {p.Token("RS256", forUs), ""},
		"among audiences":   {es(with("aud", []string{"x", audience})), ""},
		"own client":        {es(map[string]any{"aud": "cli", "azp": "cli"}), ""},
		"fractions":         {es(with("exp", float64(now.Unix())+100.5)), ""},
		"clock a bit off":   {es(with("exp", now.Add(-50*time.Second).Unix())), ""},
		"access token":      {signed(map[string]any{"typ": "at+jwt"}), ""},

		"none":                 {raw(`{"alg":"none"}`, text(p.Claims(forUs)), func(string) []byte { return []byte("x") }), "signed with"},
		"none, unsigned":       {parts[0] + "." + parts[1] + ".", "three parts"},
		"None":                 {raw(`{"alg":"None"}`, text(p.Claims(forUs)), func(string) []byte { return []byte("x") }), "signed with"},
		"HS256 of public key":  {raw(`{"alg":"HS256","kid":"`+key.KeyID+`"}`, text(p.Claims(forUs)), func(s string) []byte { m := hmac.New(sha256.New, public); m.Write([]byte(s)); return m.Sum(nil) }), "signed with"},
		"not allowed":          {p.Token("ES384", forUs), "signed with"},
		"curve of another alg": {raw(`{"alg":"ES256","kid":"es384-1"}`, text(p.Claims(forUs)), func(string) []byte { return make([]byte, 64) }), "does not have"},
		"zero signature":       {raw(`{"alg":"ES256","kid":"`+key.KeyID+`"}`, text(p.Claims(forUs)), func(string) []byte { return make([]byte, 64) }), "signature"},
		"stranger's key":       {provider.Sign(strangers, map[string]any{"kid": key.KeyID}, p.Claims(forUs)), "signature"},
		"key in the header":    {provider.Sign(strangers, map[string]any{"kid": key.KeyID, "jwk": strangers.Public()}, p.Claims(forUs)), "signature"},
		"keys elsewhere":       {provider.Sign(strangers, map[string]any{"kid": key.KeyID, "jku": stranger.URL + "/keys"}, p.Claims(forUs)), "signature"},
		"unknown key":          {provider.Sign(other, nil, p.Claims(forUs)), "does not have"},
		"changed":              {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(text(p.Claims(with("sub", "root"))))) + "." + parts[2], "signature"},
		"another issuer":       {stranger.Token("ES256", forUs), "issued by"},
		"issuer with a slash":  {es(with("iss", p.URL+"/")), "issued by"},
		"wrong audience":       {es(map[string]any{"aud": "urn:dayfly:org:other"}), "audience"},
		"no audience":          {es(nil), "audience"},
		"audience of a kind":   {es(map[string]any{"aud": map[string]any{audience: true}}), "audience"},
		"another client":       {es(map[string]any{"aud": []string{"cli", "web"}, "azp": "web"}), "azp"},
		"expired":              {es(with("exp", now.Add(-2*time.Minute).Unix())), "expired"},
		"no expiry":            {es(with("exp", nil)), "exp"},
		"expiry is a text":     {es(with("exp", "9999999999")), "exp"},
		"expiry is huge":       {es(with("exp", 1e300)), "exp"},
		"not yet valid":        {es(with("nbf", now.Add(2*time.Minute).Unix())), "nbf"},
		"from the future":      {es(with("iat", now.Add(2*time.Minute).Unix())), "iat"},
		"nbf is a text":        {es(with("nbf", "tomorrow")), "nbf"},
		"crit":                 {raw(`{"alg":"ES256","crit":["exp"],"exp":1}`, text(p.Claims(forUs)), func(string) []byte { return []byte("x") }), "crit"},
		"b64":                  {raw(`{"alg":"ES256","b64":false}`, text(p.Claims(forUs)), func(string) []byte { return []byte("x") }), "b64"},
		"nested":               {signed(map[string]any{"cty": "JWT"}), "cty"},
		"logout token":         {signed(map[string]any{"typ": "logout+jwt"}), "type"},
		"encrypted":            {"a.b.c.d.e", "encrypted"},
		"too long":             {es(with("x", strings.Repeat("x", oidc.MaxToken))), "bytes"},
		"not a token":          {"dfu_something", "three parts"},
		"twice in it":          {raw(`{"alg":"ES256"}`, `{"aud":"`+audience+`","aud":"x"}`, func(string) []byte { return []byte("x") }), "twice"},
		"two objects":          {raw(`{"alg":"ES256"}{}`, `{}`, func(string) []byte { return []byte("x") }), "header"},
		"claims are a list":    {raw(`{"alg":"ES256"}`, `[]`, func(string) []byte { return []byte("x") }), "object"},
		"padding":              {parts[0] + "=." + parts[1] + "." + parts[2], "base64url"},
		"JSON":                 {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "three parts"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verifier(t).Verify(t.Context(), oidc.Issuer{URL: p.URL, Algorithms: algorithms, Audiences: []string{audience}, ClientID: "cli"}, c.token, now)
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v, want the claims", err)
				}
				return
			}
			if !errors.Is(err, workflow.ErrUnauthenticated) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a refusal that says %q", err, c.want)
			}
		})
	}
}

func TestVerify_FetchesRotatedKeysAtMostEveryHalfMinute(t *testing.T) {
	p, v, now := provider.Start(t, "ES256"), verifier(t), time.Now()
	is := oidc.Issuer{URL: p.URL, Algorithms: algorithms, Audiences: []string{audience}}
	check := func(at time.Time) error {
		t.Helper()
		_, err := v.Verify(t.Context(), is, p.Token("ES256", map[string]any{"aud": audience}), at)
		return err
	}
	if err := check(now); err != nil {
		t.Fatal(err)
	}
	p.Rotate("ES256")
	if err := check(now.Add(time.Second)); !errors.Is(err, workflow.ErrUnauthenticated) {
		t.Errorf("right after the last question: got %v, want a refusal", err)
	}
	if err := check(now.Add(31 * time.Second)); err != nil {
		t.Errorf("after half a minute: %v", err)
	}
	stranger := p.Key("ES256")
	stranger.KeyID = "made-up"
	for range 50 {
		_, err := v.Verify(t.Context(), is, provider.Sign(stranger, nil, p.Claims(map[string]any{"aud": audience})), now.Add(32*time.Second))
		if !errors.Is(err, workflow.ErrUnauthenticated) {
			t.Fatalf("made-up key: %v", err)
		}
	}
	if got := p.Asked("/keys"); got != 2 {
		t.Errorf("the issuer was asked %d times, want 2", got)
	}
}

func TestVerify_KeysServeWhileTheIssuerIsDownForADay(t *testing.T) {
	p, v, now := provider.Start(t, "ES256"), verifier(t), time.Now()
	p.Switch(provider.Switches{Header: http.Header{"Cache-Control": {"public, max-age=10"}}})
	is := oidc.Issuer{URL: p.URL, Algorithms: algorithms, Audiences: []string{audience}}
	token := p.Token("ES256", map[string]any{"aud": audience, "exp": now.Add(99 * time.Hour).Unix()})
	for _, c := range []struct {
		after time.Duration
		down  bool
		want  error
		asked int
	}{
		{0, false, nil, 1},
		{4 * time.Minute, false, nil, 1}, // a shorter age counts as five minutes
		{6 * time.Minute, false, nil, 2},
		{12 * time.Minute, true, nil, 2},
		{23 * time.Hour, true, nil, 2},
		{25 * time.Hour, true, workflow.ErrBusy, 2},
		{26 * time.Hour, false, nil, 3},
	} {
		p.Switch(provider.Switches{Down: c.down, Header: http.Header{"Cache-Control": {"public, max-age=10"}}})
		if _, err := v.Verify(t.Context(), is, token, now.Add(c.after)); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("after %s: got %v, want %v", c.after, err, c.want)
		}
		if got := p.Asked("/keys"); got != c.asked {
			t.Errorf("after %s: the keys were asked for %d times, want %d", c.after, got, c.asked)
		}
	}
}

func TestVerify_KeysOfABrokenIssuerAreBusy(t *testing.T) {
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	for name, s := range map[string]provider.Switches{
		"down":                  {Down: true},
		"metadata of another":   {Issuer: "https://id.example.com"},
		"keys too long":         {Padding: 300 << 10},
		"too many keys":         {ManyKeys: 100},
		"redirect to metadata":  {RedirectTo: "http://169.254.169.254/latest/meta-data/"},
		"redirect to a host":    {RedirectTo: elsewhere.URL},
		"keys at a file":        {KeysAt: "file:///etc/passwd"},
		"keys at the metadata":  {KeysAt: "http://169.254.169.254/latest/meta-data/"},
		"keys of another scope": {KeysAt: "http://10.0.0.1/keys"},
		"keys nowhere":          {KeysAt: "::"},
	} {
		t.Run(name, func(t *testing.T) {
			p := provider.Start(t, "ES256")
			p.Switch(s)
			v := verifier(t)
			for range 3 {
				_, err := v.Verify(t.Context(), oidc.Issuer{URL: p.URL, Algorithms: algorithms, Audiences: []string{audience}}, p.Token("ES256", map[string]any{"aud": audience}), time.Now())
				if !errors.Is(err, workflow.ErrBusy) || strings.Contains(err.Error(), "169.254") || strings.Contains(err.Error(), "10.0.0.1") {
					t.Errorf("got %v, want busy, without what the issuer says", err)
				}
			}
			if got := p.Asked("/.well-known/openid-configuration"); got != 1 {
				t.Errorf("the issuer was asked %d times, want once", got)
			}
		})
	}
}

func TestVerify_ManyCallersAskOnce(t *testing.T) {
	p, v, now := provider.Start(t, "ES256"), verifier(t), time.Now()
	hold := make(chan struct{})
	p.Switch(provider.Switches{Hold: hold})
	token := p.Token("ES256", map[string]any{"aud": audience})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := v.Verify(t.Context(), oidc.Issuer{URL: p.URL, Algorithms: algorithms, Audiences: []string{audience}}, token, now); err != nil {
				t.Error(err)
			}
		})
	}
	close(hold)
	all.Wait()
	if got := p.Asked("/keys"); got != 1 {
		t.Errorf("the keys were asked for %d times, want once", got)
	}
}

func TestVerify_KeysOfOneNameAreTriedInTurn(t *testing.T) {
	p := provider.Start(t, "ES256")
	p.AddSameName()
	if _, err := verifier(t).Verify(t.Context(), oidc.Issuer{URL: p.URL, Algorithms: algorithms, Audiences: []string{audience}}, p.Token("ES256", map[string]any{"aud": audience}), time.Now()); err != nil {
		t.Error(err)
	}
	nameless := p.Key("ES256")
	nameless.KeyID = ""
	if _, err := verifier(t).Verify(t.Context(), oidc.Issuer{URL: p.URL, Algorithms: algorithms, Audiences: []string{audience}}, provider.Sign(nameless, nil, p.Claims(map[string]any{"aud": audience})), time.Now()); !errors.Is(err, workflow.ErrUnauthenticated) {
		t.Errorf("a token that names no key of two: %v", err)
	}
}

func TestVerify_PrivateAddressesAreRefusedUnlessListed(t *testing.T) {
	p := provider.Start(t, "ES256")
	port := p.URL[strings.LastIndex(p.URL, ":"):]
	for name, c := range map[string]struct {
		host   string
		listed []string
		ok     bool
	}{
		"by network":       {"127.0.0.1", []string{"127.0.0.0/8"}, true},
		"by address":       {"127.0.0.1", []string{"127.0.0.1"}, true},
		"by name":          {"localhost", []string{"LOCALHOST"}, true},
		"not listed":       {"127.0.0.1", []string{}, false},
		"another network":  {"127.0.0.1", []string{"10.0.0.0/8"}, false},
		"name, not listed": {"localhost", []string{"example.com"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p.URL = "http://" + c.host + port
			_, err := verifier(t, c.listed...).Verify(t.Context(), oidc.Issuer{URL: p.URL, Algorithms: algorithms, Audiences: []string{audience}}, p.Token("ES256", map[string]any{"aud": audience}), time.Now())
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCheckAddress_RefusesWhatCannotBeAnIssuer(t *testing.T) {
	v := verifier(t, "127.0.0.1", "id.example.internal", "10.1.0.0/16")
	for address, ok := range map[string]bool{
		"https://id.example.com":                      true,
		"https://id.example.com/realms/a":             true,
		"https://id.example.internal":                 true,
		"https://10.1.2.3":                            true,
		"http://127.0.0.1:8080":                       true,
		"https://token.actions.githubusercontent.com": true,
		"http://id.example.com":                       false,
		"https://10.2.2.3":                            false,
		"https://user:pw@id.example.com":              false,
		"https://id.example.com?x=1":                  false,
		"https://id.example.com?":                     false,
		"https://id.example.com#x":                    false,
		"ftp://id.example.com":                        false,
		"https:":                                      false,
		"id.example.com":                              false,
	} {
		if err := v.CheckAddress("url", address); (err == nil) != ok {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

func TestMatch_AStarStandsForAnyCharacters(t *testing.T) {
	for _, c := range []struct {
		form, value string
		want        bool
	}{
		{"a", "a", true}, {"a", "A", false}, {"a", "ab", false}, {"a*", "ab", true}, {"a*", "a", true}, {"*", "", true}, {"", "", true}, {"", "a", false},
		{"repo:acme/*:ref:refs/heads/main", "repo:acme/x:ref:refs/heads/main", true},
		{"repo:acme/*:ref:refs/heads/main", "repo:acme/x:ref:refs/heads/main2", false},
		{"*a*b*", "xxaxxbxx", true}, {"*a*b", "ab", true}, {"*a*b", "ba", false}, {"**", "x", true}, {"a**b", "ab", true}, {"?", "x", false},
	} {
		if got := oidc.Match(c.form, c.value); got != c.want {
			t.Errorf("Match(%q, %q) = %t", c.form, c.value, got)
		}
	}
}

func TestClaims_NestedOnesAreFoundByTheirPath(t *testing.T) {
	c := oidc.Claims{
		"https://sts.amazonaws.com/": map[string]any{"aws_account": "123456789012"},
		"realm_access":               map[string]any{"roles": []any{"a", "b", []any{"c"}}}, "flat.name": "x", "flag": true, "id": jsonNumber("7"),
	}
	for name, want := range map[string]string{
		"https://sts.amazonaws.com/.aws_account": "123456789012", "realm_access.roles": "a b", "flat.name": "x", "flag": "true", "none": "", "realm_access": "", "realm_access.": "", "": "",
	} {
		if got := strings.Join(c.Strings(name), " "); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func jsonNumber(s string) any {
	var v any
	_ = json.Unmarshal([]byte(s), &v)
	return v
}

func FuzzIssuerOf_NeverPanics(f *testing.F) {
	p := provider.New("ES256")
	p.URL = "https://id.example.com"
	f.Add(p.Token("ES256", map[string]any{"aud": []string{"a", "b"}}), "a.b")
	f.Add(raw(`{"alg":"none"}`, `{"iss":"x","a":{"b":[1,null,true,{"c":"d"}]}}`, func(string) []byte { return []byte("x") }), "a.b.c")
	f.Fuzz(func(t *testing.T, token, name string) {
		if iss, err := oidc.IssuerOf(token); err == nil && iss == "" {
			t.Error("no issuer and no refusal")
		}
		var c oidc.Claims
		if json.Unmarshal([]byte(token), &c) == nil {
			c.Strings(name)
		}
		_ = oidc.Match(name, token)
	})
}

func FuzzMatch_AgreesWithSplitting(f *testing.F) {
	f.Add("a*b*", "axxbyy")
	f.Fuzz(func(t *testing.T, form, value string) {
		if got, want := oidc.Match(form, value), slow(form, value); got != want {
			t.Errorf("Match(%q, %q) = %t, want %t", form, value, got, want)
		}
	})
}

// slow looks for the first place of each piece.
func slow(form, value string) bool {
	pieces := strings.Split(form, "*")
	if len(pieces) == 1 {
		return form == value
	}
	first, last := pieces[0], pieces[len(pieces)-1]
	if !strings.HasPrefix(value, first) {
		return false
	}
	value = value[len(first):]
	for _, p := range pieces[1 : len(pieces)-1] {
		_, rest, ok := strings.Cut(value, p)
		if !ok {
			return false
		}
		value = rest
	}
	return strings.HasSuffix(value, last)
}
