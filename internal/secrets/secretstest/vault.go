package secretstest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Vault is a fake of Vault's HTTP API: the part that reads a KV secrets engine, with version 2 mounted at secret/ and
// version 1 at old/kv/, a token that may read all but what lies below other/, and the AWS auth method at aws/. It
// stands in for a server that this project cannot have: vault comes as a program only.
//
// Source: Vault's HTTP API, "KV secrets engine" versions 1 and 2, "AWS auth method".
type Vault struct {
	// Token may read; empty refuses every token but those of logins.
	Token string
	// Whose says who signed a call of STS, as STS would; nil refuses every login.
	Whose func(r *http.Request) (arn string, err error)

	mu     sync.Mutex
	values map[string]map[string]string // by path below the mount, by key
	tokens map[string]string            // of logins: whose they are
	logins []string                     // role, then who, of each login
	status int
}

// Put keeps a value at a path such as secret/db under a key.
func (v *Vault) Put(path, key, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.values == nil {
		v.values = map[string]map[string]string{}
	}
	v.values[path] = map[string]string{key: value}
}

// Fail makes every call end with a status; 0 ends that.
func (v *Vault) Fail(status int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status = status
}

// Revoke ends all tokens of logins.
func (v *Vault) Revoke() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tokens = nil
}

// Logins returns "ROLE ARN" of each login.
func (v *Vault) Logins() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.logins...)
}

// ServeHTTP implements http.Handler.
func (v *Vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	token := r.Header.Get("X-Vault-Token")
	switch {
	case v.status != 0:
		refuse(w, v.status, "the server is not well")
	case !ok || r.Header.Get("X-Vault-Request") != "true":
		refuse(w, http.StatusNotFound)
	case path == "auth/aws/login" && r.Method == http.MethodPost:
		v.login(w, r)
	case token == "" || token != v.Token && v.tokens[token] == "", strings.Contains(path, "/other/"):
		refuse(w, http.StatusForbidden, "permission denied")
	default:
		v.read(w, path)
	}
}

func (v *Vault) read(w http.ResponseWriter, path string) {
	const ask = "sys/internal/ui/mounts/"
	switch {
	case strings.HasPrefix(path, ask+"secret/"):
		answer(w, map[string]any{"path": "secret/", "type": "kv", "options": map[string]string{"version": "2"}})
	case strings.HasPrefix(path, ask+"old/kv/"):
		answer(w, map[string]any{"path": "old/kv/", "type": "kv", "options": map[string]string{"version": "1"}})
	case strings.HasPrefix(path, ask+"auth/token/"):
		answer(w, map[string]any{"path": "auth/token/", "type": "token"})
	case path == "auth/token/lookup-self":
		answer(w, map[string]any{"id": v.Token})
	case strings.HasPrefix(path, ask):
		refuse(w, http.StatusForbidden, "preflight capability check returned 403, please ensure client's policies grant access to path")
	case strings.HasPrefix(path, "secret/data/") && v.values["secret/"+path[len("secret/data/"):]] != nil:
		answer(w, map[string]any{"data": v.values["secret/"+path[len("secret/data/"):]], "metadata": map[string]any{"version": 1}})
	case strings.HasPrefix(path, "old/kv/") && v.values[path] != nil:
		answer(w, v.values[path])
	default:
		refuse(w, http.StatusNotFound)
	}
}

// login asks who signed the call that it is given, as Vault does by making it.
func (v *Vault) login(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Role   string
		Method string `json:"iam_http_request_method"`
		URL    string `json:"iam_request_url"`
		Body   string `json:"iam_request_body"`
		Header string `json:"iam_request_headers"`
	}
	var header http.Header
	read := func(s string) string { raw, _ := base64.StdEncoding.DecodeString(s); return string(raw) }
	if json.NewDecoder(r.Body).Decode(&in) != nil || json.Unmarshal([]byte(read(in.Header)), &header) != nil || v.Whose == nil {
		refuse(w, http.StatusBadRequest, "missing or malformed parameters")
		return
	}
	call, err := http.NewRequestWithContext(r.Context(), in.Method, read(in.URL), strings.NewReader(read(in.Body)))
	if err != nil {
		refuse(w, http.StatusBadRequest, "malformed request")
		return
	}
	call.Header = header
	who, err := v.Whose(call)
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("error making upstream request: %v", err))
		return
	}
	if v.tokens == nil {
		v.tokens = map[string]string{}
	}
	v.logins = append(v.logins, strings.TrimSpace(in.Role+" "+who))
	token := fmt.Sprintf("hvs.login-%d", len(v.logins))
	v.tokens[token] = who
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"auth": map[string]any{"client_token": token, "lease_duration": 3600}})
}

func answer(w http.ResponseWriter, data any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
}

func refuse(w http.ResponseWriter, status int, said ...string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": append([]string{}, said...)})
}
