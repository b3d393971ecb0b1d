package setup

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

// SettingCommands are the commands of each kind of settings. Their group determines the kind, and the table of kinds
// describes it.
type SettingCommands struct {
	List   settingList   `cmd:""`
	Show   settingShow   `cmd:"" aliases:"get"`
	Delete settingDelete `cmd:""`
}

// afterSetting prints facts about a setting of a kind beside its fields.
var afterSetting = map[string]func(a *cli.App, cl *client.Client, name string) error{kind.Schedule: scheduledRuns}

// CommandKind is the kind of settings whose commands a group has.
func CommandKind(group *kong.Node) (kind.Kind, bool) {
	all := kind.Settings()
	if i := slices.IndexFunc(all, func(k kind.Kind) bool { return k.Command == group.Name }); i >= 0 {
		return all[i], true
	}
	return kind.Kind{}, false
}

// kindOf is the kind of settings that the command is about.
func kindOf(a *cli.App) kind.Kind {
	k, _ := CommandKind(a.Parsed.Selected().Parent)
	return k
}

type settingList struct{}

// Run prints the list.
func (c *settingList) Run(a *cli.App, cl *client.Client) error {
	k, now := kindOf(a), time.Now()
	head := make([]string, len(k.Columns))
	for i, column := range k.Columns {
		head[i] = column.Head
	}
	page := func(ctx context.Context, cursor string, limit int) (api.Page[api.Setting], error) {
		return cl.Settings(ctx, k, cursor, limit)
	}
	return cli.List(a, page, fmt.Sprintf("no %s: make one with dayfly apply -f FILE", k.Plural), head, func(s api.Setting) []string {
		row := make([]string, len(k.Columns))
		for i, column := range k.Columns {
			row[i] = cell(s, column, now)
		}
		return row
	})
}

type settingShow struct {
	Name string `arg:"" help:"-"`
}

// Run prints the setting.
func (c *settingShow) Run(a *cli.App, cl *client.Client) error {
	k := kindOf(a)
	s, err := cl.Setting(a.Ctx, k, c.Name)
	if err != nil {
		return err
	}
	if a.JSON() {
		return shown(a, k.Name, s.Normal(""), s, "")
	}
	var b strings.Builder
	writeFields(&b, k, s)
	if err := a.Print("%s", strings.TrimSuffix(b.String(), "\n")); err != nil {
		return err
	}
	if after := afterSetting[k.Name]; after != nil {
		return after(a, cl, c.Name)
	}
	return nil
}

type settingDelete struct {
	Name string `arg:"" help:"-"`
	cli.Confirmed
}

// Run deletes the setting.
func (c *settingDelete) Run(a *cli.App, cl *client.Client) error {
	k := kindOf(a)
	return c.Delete(a, k.Noun(), c.Name, k.Loss, func(ctx context.Context, name string) error { return cl.DeleteSetting(ctx, k, name) })
}

// cell is the text of a column for a setting.
func cell(s api.Setting, column kind.Column, now time.Time) string {
	var said []string
	separator := " "
	for _, field := range column.Fields {
		v := fieldAt(reflect.ValueOf(s), field)
		switch column.Form {
		case kind.Count:
			return fmt.Sprint(v.Len())
		case kind.Off:
			if v.Bool() {
				return column.Else
			}
			return "active"
		case kind.Until:
			if until := v.Interface().(time.Time); !now.Before(until) { // as the table says
				return "over"
			}
		case kind.Plain:
		}
		if v.Kind() == reflect.Slice {
			separator = ","
		}
		if one := valueText(v, ","); one != "" {
			said = append(said, one)
		}
	}
	return cmp.Or(strings.Join(said, separator), column.Else, "-")
}

// writeFields writes the fields of a setting that are set, one to a line, and each item of a list of things on its
// own.
func writeFields(b *strings.Builder, k kind.Kind, s api.Setting) {
	v, width := reflect.ValueOf(s), len(k.Noun())
	labels := make([]string, v.NumField())
	for i := range labels {
		labels[i] = strings.ReplaceAll(strings.TrimPrefix(jsonName(v.Type().Field(i)), "is_"), "_", " ")
		width = max(width, len(labels[i]))
	}
	line := cli.Lines(b, term.Style{}, "", max(16, width+4))
	for i, label := range labels {
		switch field := v.Field(i); {
		case label == "version":
		case label == "name":
			line(k.Noun(), valueText(field, ""))
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			for j := range field.Len() {
				line(fmt.Sprintf("%s %d", strings.TrimSuffix(label, "s"), j+1), valueText(field.Index(j), ", "))
			}
		default:
			line(label, valueText(field, ", "))
		}
	}
}

// valueText is the value of a field as text; empty if it is not set.
func valueText(v reflect.Value, separator string) string {
	if !v.IsValid() || v.IsZero() {
		return ""
	}
	var all []string
	switch v.Kind() { //nolint:exhaustive // the kinds that settings are made of
	case reflect.Pointer:
		return valueText(v.Elem(), separator)
	case reflect.Bool:
		return "yes"
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, valueText(v.Index(i), separator))
		}
	case reflect.Map:
		for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()), func(x, y reflect.Value) int { return cmp.Compare(x.String(), y.String()) }) {
			all = append(all, key.String()+"="+valueText(v.MapIndex(key), separator))
		}
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			return minute(&at)
		}
		for i := range v.NumField() {
			if one := valueText(v.Field(i), separator); one != "" {
				all = append(all, strings.ReplaceAll(jsonName(v.Type().Field(i)), "_", " ")+" "+one)
			}
		}
	default:
		return fmt.Sprint(v.Interface())
	}
	return strings.Join(all, cmp.Or(separator, ", "))
}

// fieldAt is the field of a struct at a path of JSON names; the zero Value where a pointer on the way is nil.
func fieldAt(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if !v.IsValid() {
			return v
		}
		fields := reflect.VisibleFields(v.Type())
		at := slices.IndexFunc(fields, func(f reflect.StructField) bool { return jsonName(f) == name })
		v = v.FieldByIndex(fields[at].Index)
	}
	return v
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// minute is a time as a schedule has it; "-" for none.
func minute(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.Local().Format("2006-01-02 15:04")
}

// Candidates are the existing names of a kind, up to 200 of them; none where the control plane does not answer.
func Candidates(ctx context.Context, cl *client.Client, k kind.Kind) []cli.Candidate {
	const limit = 200
	switch k.Name {
	case kind.Workspace:
		page, _ := cl.Workspaces(ctx, "", limit)
		return cli.Words(page.Items, func(w api.Workspace) cli.Candidate { return cli.Candidate{Word: w.Name, About: w.Description} })
	case kind.Pool:
		page, _ := cl.Pools(ctx, "", limit)
		return cli.Words(page.Items, func(p api.Pool) cli.Candidate { return cli.Candidate{Word: p.Name, About: p.Description} })
	case kind.Project:
		page, _ := cl.Projects(ctx, "", limit)
		return cli.Words(page.Items, func(p api.Project) cli.Candidate { return cli.Candidate{Word: p.Name, About: p.Description} })
	case kind.Organization:
		return nil
	}
	page, _ := cl.Settings(ctx, k, "", limit)
	return cli.Words(page.Items, func(s api.Setting) cli.Candidate {
		name, _ := s.Key()
		return cli.Candidate{Word: name, About: valueText(fieldAt(reflect.ValueOf(s), k.About), "")}
	})
}
