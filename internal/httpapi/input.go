package httpapi

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/strict"
)

// The pieces of input that several routes share are exported because huma ignores embedded
// types that are not; they are used in this package only.

// Paged asks for one page of a list.
type Paged struct {
	Cursor string `query:"cursor" maxLength:"1024" doc:"Where to go on: the next of the previous page"`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" doc:"Maximum number of items of the page; default 50"`
}

// Keyed makes a repeat of a request recognisable.
type Keyed struct {
	Key string `header:"Idempotency-Key" maxLength:"128" doc:"The same key with the same request does nothing more, and answers as it did the first time unless the operation says otherwise; with another request it is refused with idempotency_key_reused. It is remembered for a day"`
}

// ByPool names a pool in the address.
type ByPool struct {
	Pool string `path:"pool" maxLength:"64" doc:"Name of the pool" example:"production"`
}

// ByProject names a project in the address.
type ByProject struct {
	Project string `path:"project" maxLength:"64" doc:"Name of the project" example:"payments"`
}

// ByWorkspace names a workspace in the address.
type ByWorkspace struct {
	Workspace string `path:"workspace" maxLength:"64" doc:"Name of the workspace" example:"network"`
}

// ByID names a workflow in the address.
type ByID struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the workflow" example:"wf_01k1xz4m2p7q9r3s5t8v"`
}

// ByService names a service principal in the address.
type ByService struct {
	Service string `path:"service_principal" maxLength:"64" doc:"Name of the service principal" example:"nightly"`
}

func (in ByService) name() string   { return in.Service }
func (in ByPool) name() string      { return in.Pool }
func (in ByProject) name() string   { return in.Project }
func (in ByWorkspace) name() string { return in.Workspace }
func (in ByID) name() string        { return in.ID }

// Sent is the body of a request. Its type is that of the route: all bodies have the same type here for the reason
// that all answers have (see answer). It is a pointer because huma says of anything else that it must be there.
type Sent struct{ Body *json.RawMessage }

func (in Sent) text() []byte {
	if in.Body == nil {
		return nil
	}
	return *in.Body
}

// read makes a value of a body that huma has checked against its schema, and leaves it as it is where there is none.
// Mistakes in the body are then reported as huma does.
func read(text []byte, into any) error {
	if text == nil {
		return nil
	}
	if err := strict.Unmarshal(text, into); err != nil {
		return huma.Error422UnprocessableEntity("validation failed", &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	return nil
}

// From knows where a request comes from.
type From struct{ address string }

// Resolve implements huma.Resolver.
func (f *From) Resolve(ctx huma.Context) []error {
	f.address = admission.Address(ctx.RemoteAddr())
	return nil
}

// ByProcess names the process of an instance that calls.
type ByProcess struct {
	Boot  string `header:"Dayfly-Process" maxLength:"64" doc:"Id of the calling process, made when it began. While one is live, another one of the same instance is refused; none: processes of the instance are not told apart" example:"5GXN2VGBJ7CWLE4PAYQ6RTHK3M"`
	After string `header:"Dayfly-After" maxLength:"64" doc:"Id of the process before it in the same data directory, which it may replace at once" example:"Q2JDM7TXKCW3PVZ5HNRA6YBG4E"`
}

func (in ByProcess) process() api.Process { return api.Process{Boot: in.Boot, After: in.After} }

// ByRun names a runner's run: the workflow in the address, the rest in headers.
type ByRun struct {
	ByID
	Attempt int    `header:"Dayfly-Attempt" required:"true" minimum:"1" doc:"Attempt that the runner runs" example:"1"`
	Task    string `header:"Dayfly-Task" required:"true" maxLength:"512" doc:"The launcher's reference to the runner's task" example:"arn:aws:ecs:eu-central-1:123456789012:task/dayfly/0f8a1c2d3e4b5a697887766554433221"`
	Boot    string `header:"Dayfly-Boot" required:"true" maxLength:"64" doc:"32 hexadecimal digits that the runner made when it began" example:"0f8a1c2d3e4b5a697887766554433221"`
}

func (r *ByRun) run() api.Run {
	return api.Run{Workflow: r.ID, Attempt: r.Attempt, Task: r.Task, Boot: r.Boot}
}
