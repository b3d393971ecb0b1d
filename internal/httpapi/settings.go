package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxName is how many bytes of a name are read from an address.
const maxName = 64

// settingPath is the address of a setting of a kind.
func settingPath(k kind.Kind) string { return "/v1/" + k.Path() + "/{" + k.Name + "}" }

// ByName names a setting in the address, under the name of its kind.
type ByName struct{ value string }

func (in ByName) name() string { return in.value }

// Resolve implements huma.Resolver.
func (in *ByName) Resolve(ctx huma.Context) []error {
	parameter := ctx.Operation().Parameters[0].Name // nameParameter
	in.value = ctx.Param(parameter)
	if len(in.value) > maxName {
		return []error{&huma.ErrorDetail{Location: "path." + parameter, Message: fmt.Sprintf("expected length <= %d", maxName), Value: in.value}}
	}
	return nil
}

// nameParameter describes ByName for the document.
func nameParameter(schemas huma.Registry, k kind.Kind) *huma.Param {
	doc := "Name of the " + k.Noun()
	tag := fmt.Sprintf(`maxLength:"%d" doc:"%s" example:"%s"`, maxName, doc, k.Example)
	schema := huma.SchemaFromField(schemas, reflect.StructField{Name: "Name", Type: reflect.TypeFor[string](), Tag: reflect.StructTag(tag)}, "")
	return &huma.Param{Name: k.Name, In: "path", Description: doc, Required: true, Schema: schema}
}

// settingRoutes create or change, list, show and delete the settings of each kind.
func (s *server) settingRoutes() {
	for _, calls := range s.plane.Settings() {
		k := calls.Kind()
		route := func(id, method, path, summary, role string, errors ...int) route {
			return route{id: id, method: method, path: path, summary: summary, tag: k.Tag, audience: people, role: role, errors: errors, answer: k.Type}
		}
		one := route("put-"+k.Dashed(), http.MethodPut, settingPath(k), k.Put, api.RoleAdmin, 404, 409)
		one.named, one.body = k, k.Type
		s.add(one, putSetting(calls))

		list := route("list-"+k.Path(), http.MethodGet, "/v1/"+k.Path(), k.List, k.Reader)
		list.answer = k.Page
		s.add(list, known(func(ctx context.Context, who controlplane.Principal, in *Paged) (*answer[any], error) {
			return reply(calls.ListSettings(ctx, who, in.Cursor, in.Limit))
		}))

		one = route("get-"+k.Dashed(), http.MethodGet, settingPath(k), k.Show, k.Reader, 404)
		one.named = k
		s.add(one, known(func(ctx context.Context, who controlplane.Principal, in *ByName) (*answer[any], error) {
			return reply[any](calls.ShowSetting(ctx, who, in.name()))
		}))

		one = route("delete-"+k.Dashed(), http.MethodDelete, settingPath(k), k.Delete, api.RoleAdmin, 404, 409)
		one.named, one.answer = k, nil
		s.add(one, gone[ByName](calls.Delete))
	}
}

// putSetting registers the call that creates or changes the setting that the address names, as the body says.
func putSetting(calls interface {
	Kind() kind.Kind
	PutSetting(ctx context.Context, who controlplane.Principal, in api.Setting) (api.Setting, api.Outcome, error)
}) registrar {
	return known(func(ctx context.Context, who controlplane.Principal, in *struct {
		ByName
		Sent
	}) (*stored[any], error) {
		body := reflect.New(calls.Kind().Type)
		if err := read(in.text(), body.Interface()); err != nil {
			return nil, err
		}
		setting := body.Elem().Interface().(api.Setting) // as the table says
		if n, _ := setting.Key(); n != in.name() {
			return nil, workflow.Refuse(workflow.ErrInvalid, "name", "the name in the body, %q, is not the one in the address, %q", n, in.name())
		}
		now, outcome, err := calls.PutSetting(ctx, who, setting)
		return storing[any](http.StatusCreated, now, outcome, err)
	})
}
