package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/a-h/templ"
)

//go:embed assets
var files embed.FS

// Types of the assets, by their names. Their addresses have a digest of their content, so a browser may keep them.
var assetTypes = map[string]string{
	"style.css": "text/css; charset=utf-8",
	"app.js":    "text/javascript; charset=utf-8",
	"icon.svg":  "image/svg+xml",
}

// digest of all assets: a page of one version never gets a script of another.
var digest = sync.OnceValue(func() string {
	sum := sha256.New()
	for _, name := range []string{"app.js", "icon.svg", "style.css"} {
		b, _ := files.ReadFile("assets/" + name) // it is embedded
		sum.Write(b)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
})

// asset returns the address of an asset.
func (v *view) asset(name string) templ.SafeURL { return v.to("/assets/" + digest() + "/" + name) }

// assetRoutes serve the assets, to everybody.
func (c *Console) assetRoutes() {
	c.mux.HandleFunc("GET /assets/{digest}/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		b, err := files.ReadFile("assets/" + name)
		if assetTypes[name] == "" || err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", assetTypes[name])
		if r.PathValue("digest") == digest() {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		http.ServeContent(w, r, name, time.Time{}, strings.NewReader(string(b)))
	})
}
