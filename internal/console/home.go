package console

import (
	"net/http"

	"github.com/a-h/templ"
)

// home shows what runs, what waits and why, what needs an approval, and what failed.
func home(_ *http.Request, v *view) (templ.Component, error) {
	v.title, v.tab = "Home", "home"
	return homePage(v), nil
}
