package httpapi

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// audience is the kind of callers of a route.
type audience string

const (
	open    audience = ""
	people  audience = "user"
	stacks  audience = "pool"
	either  audience = "user or pool"
	runners audience = "job"
)

// scope is where somebody needs the role of a route. Each route whose rules look at projects says so.
type scope string

const (
	inOrganization scope = ""        // in the whole organization
	inProject      scope = "project" // in the project of the call's object, or in one above it
	inAny          scope = "any"     // in any project: the answer has the objects that the caller may see
)

// jobPrefix marks a job token.
const jobPrefix = "dfj_"

// route describes one operation, for the mux and for the document alike.
type route struct {
	id       string
	method   string
	path     string
	summary  string
	tag      string
	audience audience
	role     string       // least role of people
	scope    scope        // where they need it
	status   int          // of success; 0 means 200, or 204 without a body
	large    bool         // takes a body up to Config.MaxBody
	body     reflect.Type // of a request, where it is Sent; a pointer means that there may be none
	answer   reflect.Type // of a body whose type only a row of package kind knows
	named    kind.Kind    // kind of the named object, where it is ByName
	errors   []int        // statuses beyond those that every route of its kind may answer
	note     string       // facts for callers beside the summary
}

// answer is a successful answer with a body, a T. The body is not declared as one, so that all answers have the same
// fields: huma's code for a route is compiled once for all routes whose types have the same.
type answer[T any] struct {
	Body any
}

func (answer[T]) body() reflect.Type { return reflect.TypeFor[T]() }

// reply makes the answer of a handler from the result of the rules.
func reply[T any](v T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{Body: v}, nil
}

// nothing is a successful answer without a body. It is nil: huma sends only the status then.
type nothing = answer[none]

type none struct{}

// add adds a route.
func (s *server) add(rt route, register registrar) {
	s.routes = append(s.routes, func(on huma.API) { register(registration{s, rt, on}) })
	// Its schemas are made when it is first called. A mistake in them is found with the document's test.
	handler := sync.OnceValue(func() http.Handler {
		mux, cfg := http.NewServeMux(), describe()
		cfg.RejectUnknownQueryParameters = rt.audience != runners
		on := humago.New(mux, cfg)
		register(registration{s, rt, on})
		if rt.audience == runners {
			passOver(on)
		}
		return mux
	})
	s.mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) { handler().ServeHTTP(w, r) })
}

// registration is a route that is being registered with huma.
type registration struct {
	s *server
	route
	on huma.API
}

// registrar registers a route with huma, when it is first called. The functions below only return one: the code for
// each type of input is large, and a process that starts does not read it.
type registrar func(registration)

// direct registers a call as it is.
func direct[I, O any](call func(context.Context, *I) (*O, error)) registrar {
	return func(r registration) {
		answer := r.answer
		if answer == nil {
			answer = any(*new(O)).(interface{ body() reflect.Type }).body()
		}
		op := r.operation(reflect.TypeFor[I](), answer)
		huma.Register(r.on, op, func(ctx context.Context, in *I) (*O, error) {
			out, err := call(ctx, in)
			if err != nil {
				return nil, r.refused(ctx, err)
			}
			return out, nil
		})
	}
}

// refused is the error that huma answers with.
func (r registration) refused(ctx context.Context, err error) error {
	if unreadable, ok := errors.AsType[*huma.ErrorModel](err); ok {
		return unreadable
	}
	return r.s.refuse(ctx, err)
}

// passOver makes the schemas of an API accept unknown fields. Runners need that: one of a later version may send more
// than this control plane knows, and if its result were refused, the outcome of an apply would be lost. Pool stacks are
// refused, because nothing that they report may be ignored and they lose nothing by it; people are refused, because an
// unknown field is most likely a typing mistake.
func passOver(on huma.API) {
	for _, schema := range on.OpenAPI().Components.Schemas.Map() {
		if closed, ok := schema.AdditionalProperties.(bool); ok && !closed {
			schema.AdditionalProperties = true
		}
	}
}

// known registers a route whose caller is a person or a pool stack.
func known[I, O any](call func(context.Context, controlplane.Principal, *I) (*O, error)) registrar {
	return direct(func(ctx context.Context, in *I) (*O, error) {
		who, _ := ctx.Value(callerKey{}).(controlplane.Principal)
		return call(ctx, who, in)
	})
}

// paged registers a list that is read page by page.
func paged[T any](list func(context.Context, controlplane.Principal, string, int) (api.Page[T], error)) registrar {
	return known(func(ctx context.Context, who controlplane.Principal, in *Paged) (*answer[api.Page[T]], error) {
		return reply(list(ctx, who, in.Cursor, in.Limit))
	})
}

// one registers a call about the object that the address names.
func one[I interface{ name() string }, T any](call func(context.Context, controlplane.Principal, string) (T, error)) registrar {
	return known(func(ctx context.Context, who controlplane.Principal, in *I) (*answer[T], error) {
		return reply(call(ctx, who, (*in).name()))
	})
}

// taking is r for a request with a body, a B.
func taking[B any](r registration) registration {
	if r.body == nil {
		r.body = reflect.TypeFor[B]()
	}
	return r
}

// sent registers a call with a body about the object that the address names.
func sent[I interface {
	name() string
	text() []byte
}, B, T any](call func(context.Context, controlplane.Principal, string, B) (T, error)) registrar {
	return func(r registration) {
		known(func(ctx context.Context, who controlplane.Principal, in *I) (*answer[T], error) {
			var body B
			if err := read((*in).text(), &body); err != nil {
				return nil, err
			}
			return reply(call(ctx, who, (*in).name(), body))
		})(taking[B](r))
	}
}

// stored is the answer to a put, a T.
type stored[T any] struct {
	Status  int
	Outcome api.Outcome `header:"Dayfly-Outcome" enum:"created,changed,unchanged" doc:"Whether it was created or changed, or was like that before"`
	Body    any
}

func (stored[T]) body() reflect.Type { return reflect.TypeFor[T]() }

// storing makes the answer to a put from the result of the rules. created is its status when the thing is new.
func storing[T any](created int, now T, outcome api.Outcome, err error) (*stored[T], error) {
	if err != nil {
		return nil, err
	}
	out := &stored[T]{Status: http.StatusOK, Outcome: outcome, Body: now}
	if outcome == api.OutcomeCreated {
		out.Status = created
	}
	return out, nil
}

// put registers a call that creates or changes the object that the address names, as the body says. created is the status of the
// answer when it is new; nameOf is the name in the body.
func put[I interface {
	name() string
	text() []byte
}, T any](created int, nameOf func(T) string, call func(context.Context, controlplane.Principal, T) (T, api.Outcome, error)) registrar {
	return func(r registration) {
		known(func(ctx context.Context, who controlplane.Principal, in *I) (*stored[T], error) {
			var body T
			if err := read((*in).text(), &body); err != nil {
				return nil, err
			}
			if n := nameOf(body); n != (*in).name() {
				return nil, workflow.Refuse(workflow.ErrInvalid, "name", "the name in the body, %q, is not the one in the address, %q", n, (*in).name())
			}
			now, outcome, err := call(ctx, who, body)
			return storing(created, now, outcome, err)
		})(taking[T](r))
	}
}

// posted registers a call with a body.
func posted[B, T any](call func(context.Context, controlplane.Principal, B) (T, error)) registrar {
	return func(r registration) {
		known(func(ctx context.Context, who controlplane.Principal, in *Sent) (*answer[T], error) {
			var body B
			if err := read(in.text(), &body); err != nil {
				return nil, err
			}
			return reply(call(ctx, who, body))
		})(taking[B](r))
	}
}

// keyed registers a call with a body, whose repeat is recognised by its key.
func keyed[B, T any](call func(context.Context, controlplane.Principal, string, B) (T, error)) registrar {
	return func(r registration) {
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			Keyed
			Sent
		}) (*answer[T], error) {
			var body B
			if err := read(in.text(), &body); err != nil {
				return nil, err
			}
			return reply(call(ctx, who, in.Key, body))
		})(taking[B](r))
	}
}

// gone registers the deletion of the object that the address names.
func gone[I interface{ name() string }](call func(context.Context, controlplane.Principal, string) error) registrar {
	return known(func(ctx context.Context, who controlplane.Principal, in *I) (*nothing, error) {
		return nil, call(ctx, who, (*in).name())
	})
}

// reported registers a pool stack's report about a job.
func reported[B any](call func(context.Context, controlplane.Principal, string, B) error) registrar {
	return told[struct {
		ByID
		Sent
	}](call)
}

// told registers a report about the object that the address names.
func told[I interface {
	name() string
	text() []byte
}, B any](call func(context.Context, controlplane.Principal, string, B) error) registrar {
	return func(r registration) {
		known(func(ctx context.Context, who controlplane.Principal, in *I) (*nothing, error) {
			var body B
			if err := read((*in).text(), &body); err != nil {
				return nil, err
			}
			return nil, call(ctx, who, (*in).name(), body)
		})(taking[B](r))
	}
}

// ran registers a call of a runner about its run.
func ran[B, T any](call func(context.Context, string, api.Run, B) (T, error)) registrar {
	return func(r registration) {
		direct(func(ctx context.Context, in *struct {
			ByRun
			Sent
		}) (*answer[T], error) {
			var body B
			if err := read(in.text(), &body); err != nil {
				return nil, err
			}
			return reply(call(ctx, jobToken(ctx), in.run(), body))
		})(taking[B](r))
	}
}

// callerKey is the key of the request's identity: a Principal, or a job token.
type callerKey struct{}

// jobToken returns the token of a runner's call.
func jobToken(ctx context.Context) string {
	token, _ := ctx.Value(callerKey{}).(string)
	return token
}

// admit checks that the token is for the route's audience. It comes before the body is read, so that a caller without
// permission learns nothing about the request's mistakes.
func (s *server) admit(rt route) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if rt.audience == open {
			next(ctx)
			return
		}
		r, w := humago.Unwrap(ctx)
		caller, err := s.identify(r, rt)
		if err == nil {
			err = checkQuery(r.URL.Query())
		}
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
		next(huma.WithValue(ctx, callerKey{}, caller))
	}
}

// checkQuery refuses parameters that would not do what they seem to: of one that stands twice only the first counts, and
// an empty one, such as an empty variable of a shell leaves, would ask for everything. An empty cursor is that of the first
// page.
func checkQuery(query url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch all := query[name]; {
		case len(all) > 1:
			return workflow.Refuse(workflow.ErrInvalid, "query."+text.Cut(name, 64), "the parameter %s stands %d times in the address: name it once", text.Quote(name, 64), len(all))
		case all[0] == "" && name != "cursor":
			return workflow.Refuse(workflow.ErrInvalid, "query."+text.Cut(name, 64), "the parameter %s has no value: give it one, or leave it out", text.Quote(name, 64))
		}
	}
	return nil
}

func (s *server) identify(r *http.Request, rt route) (any, error) {
	want := rt.audience
	token, err := bearer(r)
	if err != nil {
		return nil, err
	}
	isJob := strings.HasPrefix(token, jobPrefix)
	switch {
	case want == runners && !isJob:
		return nil, workflow.Refuse(workflow.ErrUnauthenticated, "", "this call takes a job token, which starts with %s", jobPrefix)
	case want == runners:
		return token, nil // the rules check it together with the run that it names
	case isJob:
		return nil, workflow.Refuse(workflow.ErrUnauthenticated, "", "this call takes a %s token; a job token is for its runner's calls only", want)
	}
	var who controlplane.Principal
	err = s.gate.Identify(r.Context(), admission.Address(r.RemoteAddr), token, func(ctx context.Context, token string) (counted string, err error) {
		if who, err = s.plane.Authenticate(ctx, token); err == nil && who.Audience == string(people) {
			counted = who.Organization
		}
		return counted, err
	})
	if err != nil {
		return nil, err
	}
	if want != either && who.Audience != string(want) {
		return nil, s.plane.Refuse(r.Context(), who, rt.id, workflow.Refuse(workflow.ErrForbidden, "", "this call takes a %s token; yours is a %s token", want, who.Audience))
	}
	return who, nil
}

const longestToken = 512

func bearer(r *http.Request) (string, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", workflow.Refuse(workflow.ErrUnauthenticated, "", "send a token in the header Authorization: Bearer TOKEN")
	}
	if len(token) > longestToken {
		return "", workflow.Refuse(workflow.ErrUnauthenticated, "", "this is not a token of ours: it is too long")
	}
	return token, nil
}

// maxPassedOver is how much of a body that is too large is read all the same, so that its sender gets the answer.
const maxPassedOver = 8 << 20

// readBody reads the whole body before huma looks at it, so that each failure to read it has the right status.
func (s *server) readBody(limit int64) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if ctx.Operation().RequestBody == nil {
			next(ctx)
			return
		}
		r, w := humago.Unwrap(ctx)
		// Not every writer has a connection with deadlines: the one in memory has none.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
		text, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
		encoding := r.Header.Get("Content-Encoding")
		switch {
		case encoding != "" && !strings.EqualFold(encoding, "identity"):
			_, _ = io.CopyN(io.Discard, r.Body, maxPassedOver) // as below
			write(w, encoded(), nil)
			return
		case int64(len(text)) > limit:
			// An answer that is sent while the caller still sends is lost with the connection.
			_, _ = io.CopyN(io.Discard, r.Body, maxPassedOver)
			s.writeProblem(w, r, errTooLarge(limit))
			return
		case err != nil:
			write(w, unread(err), nil)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(text)))
		plainType(r)
		next(ctx)
	}
}

// plainType writes the media type of a request as huma looks for it: case means nothing in it.
func plainType(r *http.Request) {
	media, parameters, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if plain := strings.ToLower(strings.TrimSpace(media)); plain != media {
		r.Header = r.Header.Clone() // it may be the caller's own, in memory
		r.Header.Set("Content-Type", plain+";"+parameters)
	}
}

func encoded() api.Problem {
	return api.Problem{
		Status: http.StatusUnsupportedMediaType, Title: http.StatusText(http.StatusUnsupportedMediaType), Code: codeMediaType,
		Detail: "send the body as it is, without Content-Encoding: compressed bodies are not taken",
	}
}

func unread(err error) api.Problem {
	p := api.Problem{Status: http.StatusBadRequest, Code: codeInvalid, Detail: "the request's body could not be read to its end"}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		p = api.Problem{Status: http.StatusRequestTimeout, Code: codeTimeout, Detail: "the request's body did not arrive in time"}
	}
	p.Title = http.StatusText(p.Status)
	return p
}
