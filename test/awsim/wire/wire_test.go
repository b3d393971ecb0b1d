package wire_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

func TestQuery_ReadsListsAndStructures(t *testing.T) {
	for body, want := range map[string]string{
		"Action=AssumeRole&Version=2011-06-15&RoleArn=a%3Ab&DurationSeconds=900": `{"DurationSeconds":"900","RoleArn":"a:b"}`,
		"Action=A&Tags.member.2.Key=b&Tags.member.1.Key=a&Tags.member.1.Value=1": `{"Tags":[{"Key":"a","Value":"1"},{"Key":"b"}]}`,
		"Action=A&Keys.member.1=x&Deep.In.Side=y":                                `{"Deep":{"In":{"Side":"y"}},"Keys":["x"]}`,
		"Action=A": `{}`,
	} {
		operation, in, err := wire.Query{}.Read(nil, []byte(body))
		if err != nil || !strings.HasPrefix(operation, "A") || string(in) != want {
			t.Errorf("%s: got %s %s, %v; want %s", body, operation, in, err, want)
		}
	}
	for _, body := range []string{"", "Version=1", "Action=A&B=1&B.C=2", "Action=A&" + strings.Repeat("a.", 20) + "b=1", "Action=%zz"} {
		_, _, err := wire.Query{}.Read(nil, []byte(body))
		if _, ok := errors.AsType[*wire.Error](err); !ok {
			t.Errorf("%q: got %v, want an error of AWS", body, err)
		}
	}
}

func TestQuery_AnswersInXML(t *testing.T) {
	w := httptest.NewRecorder()
	q := wire.Query{Namespace: "https://sts.amazonaws.com/doc/2011-06-15/"}
	if err := q.Write(w, nil, "GetCallerIdentity", struct{ Arn string }{"<a & b>"}); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); !strings.HasPrefix(got, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>&lt;a &amp; b&gt;</Arn></GetCallerIdentityResult><ResponseMetadata><RequestId>`) {
		t.Errorf("got %s", got)
	}
	w = httptest.NewRecorder()
	q.Fail(w, nil, &wire.Error{Status: http.StatusForbidden, Code: "ExpiredTokenException", QueryCode: "ExpiredToken", Message: "a < b"})
	if got := w.Body.String(); w.Code != http.StatusForbidden || !strings.Contains(got, "<Error><Type>Sender</Type><Code>ExpiredToken</Code><Message>a &lt; b</Message></Error>") {
		t.Errorf("got %d %s", w.Code, got)
	}
}

func TestJSON_ErrorsCarryTheirFields(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	wire.JSON{Query: true}.Fail(w, r, &wire.Error{Status: 503, Code: "ServiceUnavailable", Message: "later", Fields: map[string]any{"resourceIds": []string{"a"}}, Header: http.Header{"Retry-After": {"2"}}})
	if got, want := w.Body.String(), `{"__type":"ServiceUnavailable","message":"later","resourceIds":["a"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for name, want := range map[string]string{"X-Amzn-Query-Error": "ServiceUnavailable;Receiver", "Retry-After": "2", "Content-Type": "application/x-amz-json-1.0"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestTime_IsSecondsToTheMillisecond(t *testing.T) {
	at := time.Date(2026, 11, 21, 6, 0, 0, 123_456_789, time.UTC)
	text, err := json.Marshal(map[string]wire.Time{"a": wire.Time(at), "none": {}})
	if got, want := string(text), `{"a":1795240800.123,"none":null}`; err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	var back map[string]wire.Time
	if err := json.Unmarshal(text, &back); err != nil || !time.Time(back["a"]).Equal(at.Truncate(time.Millisecond)) || !time.Time(back["none"]).IsZero() {
		t.Errorf("got %v, %v", back, err)
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("Action=A&Tags.member.1.Key=a")
	f.Add("Action=A&A.member.1=1&A.member.x=2&A=3")
	f.Fuzz(func(t *testing.T, body string) {
		operation, in, err := wire.Query{}.Read(nil, []byte(body))
		if err != nil {
			if _, ok := errors.AsType[*wire.Error](err); !ok {
				t.Errorf("%q: got %v, want an error of AWS", body, err)
			}
			return
		}
		if operation == "" || !json.Valid(in) {
			t.Errorf("%q was read as %s %s", body, operation, in)
		}
	})
}

func TestDecode_RefusesWhatItDoesNotKnow(t *testing.T) {
	type input struct {
		Name    string
		Group   wire.Ignored
		Entries []struct{ Key string }
	}
	call := func(body string) wire.Call {
		return wire.Call{Service: "ecs", Operation: "RunTask", Body: []byte(body)}
	}
	for _, body := range []string{``, `{}`, `{"Name":"a","Group":{"x":[1]},"Entries":[{"Key":"k"}]}`} {
		if _, err := wire.Decode[input](call(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	for body, want := range map[string]string{
		`{"Other":1}`:               `ecs RunTask: AWS does not have the member "Other", or this fake does not implement it.`,
		`{"Entries":[{"Value":1}]}`: `ecs RunTask: AWS does not have the member "Value", or this fake does not implement it.`,
		`{} {}`:                     "the body goes on after its document",
	} {
		_, err := wire.Decode[input](call(body))
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != "SerializationException" || e.Message != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}
