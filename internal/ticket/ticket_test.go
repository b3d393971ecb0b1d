package ticket_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testKey(id string, fill byte) ticket.Key {
	return ticket.Key{ID: id, Secret: redact.New(strings.Repeat(string(rune(fill)), ticket.KeySize))}
}

func ring(t testing.TB, keys ...ticket.Key) *ticket.Keyring {
	t.Helper()
	k, err := ticket.NewKeyring(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func claims() ticket.Claims {
	return ticket.Claims{Job: "wf_0001", Attempt: 2, Token: redact.New("dfj_" + strings.Repeat("x", 43)), Expires: now.Add(time.Hour), Group: "default/net", Organization: "default", WorkspaceID: "ws_1"}
}

func seal(t testing.TB, k *ticket.Keyring, c ticket.Claims) string {
	t.Helper()
	s, err := k.Seal(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func refused(t *testing.T, k *ticket.Keyring, text string, at time.Time, sentence string) {
	t.Helper()
	got, err := k.Open(text, at)
	if !errors.Is(err, workflow.ErrUnauthenticated) || !strings.Contains(err.Error(), sentence) {
		t.Errorf("Open: got error %v, want ErrUnauthenticated with %q", err, sentence)
	}
	if !got.Token.Empty() || got.Job != "" {
		t.Errorf("Open: got claims %v with an error, want none", got)
	}
}

func TestOpen_ReturnsWhatWasSealed(t *testing.T) {
	k := ring(t, testKey("one", 'a'))
	want := claims()
	text := seal(t, k, want)
	got, err := k.Open(text, now)
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Comparer(func(a, b redact.String) bool { return a.Reveal() == b.Reveal() })
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("claims differ (-want +got):\n%s", diff)
	}
	if len(text) > 512 {
		t.Errorf("ticket has %d characters, want at most 512: it travels in a bounded environment", len(text))
	}
	if strings.Contains(text, "dfj_") || strings.Contains(text, base64.RawURLEncoding.EncodeToString([]byte(want.Token.Reveal()))) {
		t.Error("the token is readable in its ticket")
	}
	if again := seal(t, k, want); again == text {
		t.Error("the same claims gave the same ticket twice: the nonce is not fresh")
	}
}

func TestOpen_AcceptsOldKeysDuringARotation(t *testing.T) {
	before := ring(t, testKey("old", 'a'))
	during := ring(t, testKey("new", 'b'), testKey("old", 'a'))
	after := ring(t, testKey("new", 'b'))

	oldTicket, newTicket := seal(t, before, claims()), seal(t, during, claims())
	for _, text := range []string{oldTicket, newTicket} {
		if _, err := during.Open(text, now); err != nil {
			t.Errorf("during the overlap: %v", err)
		}
	}
	if _, err := after.Open(newTicket, now); err != nil {
		t.Errorf("after the overlap: %v", err)
	}
	refused(t, after, oldTicket, now, "(old) that is not known here")
	// The same id with another secret is a broken seal, not somebody else's key.
	refused(t, ring(t, testKey("old", 'z')), oldTicket, now, "seal does not hold")
}

func TestOpen_ExpiredTicketIsRefused(t *testing.T) {
	k := ring(t, testKey("one", 'a'))
	c := claims()
	text := seal(t, k, c)
	if _, err := k.Open(text, c.Expires.Add(-time.Second)); err != nil {
		t.Errorf("a second before its expiry: %v", err)
	}
	refused(t, k, text, c.Expires, "expired at 2026-03-01T13:00:00Z")
}

func TestOpen_AnyChangedCharacterIsRefused(t *testing.T) {
	k := ring(t, testKey("one", 'a'))
	text := seal(t, k, claims())
	for i := range text {
		for _, c := range []byte{'A', 'B', '_', '.', '\n', '='} {
			if text[i] == c {
				continue
			}
			changed := text[:i] + string(c) + text[i+1:]
			if _, err := k.Open(changed, now); !errors.Is(err, workflow.ErrUnauthenticated) {
				t.Fatalf("character %d changed to %q: got %v, want ErrUnauthenticated", i, c, err)
			}
		}
	}
}

func TestOpen_ForeignFormsAreRefused(t *testing.T) {
	key := testKey("one", 'a')
	k := ring(t, key)
	text := seal(t, k, claims())
	part := strings.Split(text, ".")
	b64 := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	with := func(i int, s string) string {
		p := append([]string(nil), part...)
		p[i] = s
		return strings.Join(p, ".")
	}
	other := strings.Split(seal(t, k, claims()), ".")

	foreign := func(enc jose.ContentEncryption, r jose.Recipient, opts *jose.EncrypterOptions, plain string) string {
		e, err := jose.NewEncrypter(enc, r, opts)
		if err != nil {
			t.Fatal(err)
		}
		o, err := e.Encrypt([]byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		s, err := o.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	secret := []byte(key.Secret.Reveal())
	direct := jose.Recipient{Algorithm: jose.DIRECT, Key: secret, KeyID: "one"}
	good := fmt.Sprintf(`{"job":"j","attempt":1,"token":"t","group":"o/w","org":"o","wsid":"w","exp":%d}`, now.Add(time.Hour).Unix())

	// The helper makes tickets that do open, so that the refusals below are about their differences.
	if _, err := k.Open(foreign(jose.A256GCM, direct, nil, good), now); err != nil {
		t.Fatalf("a ticket made by hand: %v", err)
	}
	// A newer poller may say more than this relay knows.
	if _, err := k.Open(foreign(jose.A256GCM, direct, nil, strings.Replace(good, "{", `{"pool":"p",`, 1)), now); err != nil {
		t.Errorf("an unknown claim: %v", err)
	}

	tests := map[string]struct{ text, sentence string }{
		"empty":                  {"", "empty"},
		"not a ticket":           {"hello", "five parts"},
		"the bare token":         {"dfj_abc", "five parts"},
		"one part less":          {strings.Join(part[:4], "."), "five parts"},
		"one part more":          {text + ".", "five parts"},
		"padding":                {text + "=", "base64url"},
		"line end":               {text + "\n", "base64url"},
		"too long":               {text + strings.Repeat("A", ticket.MaxLength), "more than 2048"},
		"encrypted key given":    {with(1, "AAAA"), "sizes"},
		"short nonce":            {with(2, "AAAA"), "sizes"},
		"no content":             {with(3, ""), "sizes"},
		"short tag":              {with(4, part[4][:16]), "sizes"},
		"nonce of another":       {with(2, other[2]), "seal"},
		"content of another":     {with(3, other[3]), "seal"},
		"tag of another":         {with(4, other[4]), "seal"},
		"header not JSON":        {with(0, b64("x")), "header"},
		"header null":            {with(0, b64("null")), "header"},
		"header with more":       {with(0, b64(`{"alg":"dir","enc":"A256GCM","kid":"one"}{}`)), "after it"},
		"header with zip":        {with(0, b64(`{"alg":"dir","enc":"A256GCM","kid":"one","zip":"DEF"}`)), "header"},
		"header with crit":       {with(0, b64(`{"alg":"dir","enc":"A256GCM","kid":"one","crit":["x"],"x":1}`)), "header"},
		"header without kid":     {with(0, b64(`{"alg":"dir","enc":"A256GCM"}`)), "header"},
		"header with strange id": {with(0, b64(`{"alg":"dir","enc":"A256GCM","kid":"../x"}`)), "header"},
		"header respelled":       {with(0, b64(`{"kid":"one","alg":"dir","enc":"A256GCM"}`)), "seal"},
		"alg none":               {with(0, b64(`{"alg":"none","enc":"A256GCM","kid":"one"}`)), "header"},
		"another cipher":         {foreign(jose.A128CBC_HS256, direct, nil, good), "sizes"},
		"wrapped key":            {foreign(jose.A256GCM, jose.Recipient{Algorithm: jose.A256KW, Key: secret, KeyID: "one"}, nil, good), "sizes"},
		"compressed":             {foreign(jose.A256GCM, direct, &jose.EncrypterOptions{Compression: jose.DEFLATE}, good), "header"},
		"content not JSON":       {foreign(jose.A256GCM, direct, nil, "x"), "not readable"},
		"no job":                 {foreign(jose.A256GCM, direct, nil, `{"attempt":1,"token":"t","exp":9999999999}`), "no job"},
		"no attempt":             {foreign(jose.A256GCM, direct, nil, `{"job":"j","token":"t","exp":9999999999}`), "no attempt"},
		"no token":               {foreign(jose.A256GCM, direct, nil, `{"job":"j","attempt":1,"exp":9999999999}`), "no token"},
		"no expiry":              {foreign(jose.A256GCM, direct, nil, `{"job":"j","attempt":1,"token":"t"}`), "no expiry"},
		"no workspace":           {foreign(jose.A256GCM, direct, nil, strings.Replace(good, "wsid", "else", 1)), "no organization or workspace"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { refused(t, k, tt.text, now, tt.sentence) })
	}
}

func TestSeal_IncompleteClaimsAreRefused(t *testing.T) {
	k := ring(t, testKey("one", 'a'))
	tests := map[string]struct {
		change func(*ticket.Claims)
		want   error
	}{
		"no job":          {func(c *ticket.Claims) { c.Job = "" }, workflow.ErrInvalid},
		"attempt 0":       {func(c *ticket.Claims) { c.Attempt = 0 }, workflow.ErrInvalid},
		"no token":        {func(c *ticket.Claims) { c.Token = redact.String{} }, workflow.ErrInvalid},
		"no expiry":       {func(c *ticket.Claims) { c.Expires = time.Time{} }, workflow.ErrInvalid},
		"no group":        {func(c *ticket.Claims) { c.Group = "" }, workflow.ErrInvalid},
		"no organization": {func(c *ticket.Claims) { c.Organization = "" }, workflow.ErrInvalid},
		"no workspace":    {func(c *ticket.Claims) { c.WorkspaceID = "" }, workflow.ErrInvalid},
		"too long":        {func(c *ticket.Claims) { c.Job = strings.Repeat("j", ticket.MaxLength) }, workflow.ErrTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := claims()
			tt.change(&c)
			if got, err := k.Seal(c); !errors.Is(err, tt.want) || got != "" {
				t.Errorf("got %q, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestNewKeyring_BadKeysAreRefusedWithoutShowingThem(t *testing.T) {
	const planted = "planted-secret"
	tests := map[string][]ticket.Key{
		"none":        nil,
		"short":       {{ID: "a", Secret: redact.New(planted)}},
		"id empty":    {{Secret: testKey("x", 'x').Secret}},
		"id with dot": {{ID: "a.b", Secret: testKey("x", 'x').Secret}},
		"same id":     {testKey("a", 'x'), testKey("a", 'y')},
	}
	for name, keys := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ticket.NewKeyring(keys...)
			if !errors.Is(err, workflow.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			if strings.Contains(err.Error(), planted) {
				t.Errorf("the error shows a key: %v", err)
			}
		})
	}
}

func TestPrinting_ShowsNoSecret(t *testing.T) {
	key := testKey("one", 'q')
	k := ring(t, key)
	holder := struct{ Ring *ticket.Keyring }{k}
	c := claims()
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		got := fmt.Sprintf(format+format+format+format, key, k, holder, c)
		if strings.Contains(got, "qqqq") || strings.Contains(got, "7171") || strings.Contains(got, "113 113") || strings.Contains(got, "dfj_") {
			t.Errorf("%s shows a secret: %s", format, got)
		}
	}
}

func FuzzOpen(f *testing.F) {
	k := ring(f, testKey("one", 'a'), testKey("two", 'b'))
	text := seal(f, k, claims())
	f.Add(text)
	f.Add("")
	f.Add("....")
	f.Add(strings.Replace(text, ".", "..", 1))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"dir","enc":"A256GCM","kid":"one"}`)) + "..AAAAAAAAAAAAAAAA.AAAA.AAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := k.Open(s, now)
		if err != nil {
			if !errors.Is(err, workflow.ErrUnauthenticated) {
				t.Fatalf("got %v, want ErrUnauthenticated", err)
			}
			return
		}
		// Only tickets sealed above open; each process of the fuzzer sealed it anew.
		if want := claims(); got.Job != want.Job || got.Token.Reveal() != want.Token.Reveal() {
			t.Fatalf("opened %q, which nobody sealed: %v", s, got)
		}
	})
}
