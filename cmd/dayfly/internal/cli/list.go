package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// Everything is the number of items that lists without a limit stop at.
const Everything = 10_000

// List prints all that there is of something: as JSON, or as a table with these headings and a row for each.
func List[T any](a *App, page func(ctx context.Context, cursor string, limit int) (api.Page[T], error), empty string, head []string, row func(T) []string) error {
	_, err := ListUpTo(a, Everything, page, empty, head, row)
	return err
}

// Gather reads up to a number of items; more reports whether there are further ones.
func Gather[T any](a *App, limit int, page func(ctx context.Context, cursor string, limit int) (api.Page[T], error)) (items []T, more bool, err error) {
	items, more = []T{}, true
	for cursor := ""; more && len(items) < limit; more = cursor != "" {
		p, err := page(a.Ctx, cursor, min(200, limit-len(items)))
		if err != nil {
			return nil, false, err
		}
		items, cursor = append(items, p.Items...), p.Next
	}
	return items, more, nil
}

// ListUpTo prints up to a number of items; more reports whether there are further ones.
func ListUpTo[T any](a *App, limit int, page func(ctx context.Context, cursor string, limit int) (api.Page[T], error), empty string, head []string, row func(T) []string) (more bool, err error) {
	items, more, err := Gather(a, limit, page)
	if err != nil {
		return false, err
	}
	if a.JSON() {
		return more, a.Encode(items)
	}
	t := term.NewTable(head...)
	for _, one := range items {
		t.Row(row(one)...)
	}
	return more, t.Write(a.Stdout, a.Style(), empty)
}

// CheckLimit refuses a --limit with which nothing would be listed.
func CheckLimit(limit int) error {
	if limit < 1 {
		return Usage(fmt.Errorf("--limit: want a number above 0, not %d", limit))
	}
	return nil
}

// SayMore says that a list was cut at its limit, and how to see more; also is added to the sentence.
func (a *App) SayMore(limit int, also string) {
	if !a.JSON() {
		a.Say("there are more: -n %d shows more of them%s", limit*2, also)
	}
}

// Lines returns a function that writes a name and its value on a line, unless the value is empty.
func Lines(b *strings.Builder, style term.Style, indent string, width int) func(name, value string) {
	return func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "%s%s%s%s\n", indent, style.Dim(name), strings.Repeat(" ", width-len(name)), term.Clean(value))
		}
	}
}

// Words makes something of each item of a list.
func Words[T, W any](list []T, word func(T) W) (all []W) {
	for _, one := range list {
		all = append(all, word(one))
	}
	return all
}

// Ago is how long ago something was; a dash where it never was.
func Ago(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return text.Duration(time.Since(*at)) + " ago"
}

// Dash is a text in a column; a dash where there is none.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return term.Clean(s)
}
