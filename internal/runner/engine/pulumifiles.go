package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	stackResource = "pulumi:pulumi:Stack" // the root of every stack, which stands for nothing in the world
	blinded       = "[secret]"            // pulumi shows it in place of a secret value
	maxMessages   = 200                   // of one preview that go to the log
)

// pulumiProject is the part of Pulumi.yaml that concerns the runner.
type pulumiProject struct {
	Name    string `yaml:"name"`
	Backend struct {
		URL string `yaml:"url"`
	} `yaml:"backend"`
	ConfigDir string    `yaml:"stackConfigDir"`
	Config    yaml.Node `yaml:"config"`

	file string // its own name
}

func projectFiles() []string { return []string{"Pulumi.yaml", "Pulumi.yml", "Pulumi.json"} }

var projectForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`) })

// readProject reads Pulumi.yaml.
func readProject(raw []byte, file string) (pulumiProject, error) {
	p := pulumiProject{file: file}
	if err := yaml.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("%s is not YAML", file) // the error of a decoder may quote values
	}
	if !projectForm().MatchString(p.Name) {
		return p, fmt.Errorf("%s names no project: name has 1 to 100 characters of A-Z, a-z, 0-9, ., _ and -", file)
	}
	return p, nil
}

// settings is the file with the settings of a stack.
func (p pulumiProject) settings(stack string) string {
	return path.Join(p.ConfigDir, "Pulumi."+stack+path.Ext(p.file))
}

// asDeclared returns the value of a variable: a JSON text is decoded if the project declares a list or an object. In
// all other cases Pulumi wants the text.
func (p pulumiProject) asDeclared(name string, value any) any {
	short := strings.TrimPrefix(name, p.Name+":")
	written, ok := value.(string)
	declared := cmp.Or(settingOf(&p.Config, short), settingOf(&p.Config, p.Name+":"+short))
	if !ok || declared == nil || !json.Valid([]byte(written)) {
		return value
	}
	if kind := settingOf(declared, "type"); kind != nil && (kind.Value == "array" || kind.Value == "object") {
		return json.RawMessage(written)
	}
	return value
}

// stateFile is where a backend that is a directory keeps the state of a stack.
func (p pulumiProject) stateFile(stack string) string {
	return ".pulumi/stacks/" + p.Name + "/" + stack + ".json"
}

// shortStack checks the name of a stack, which is STACK or ORGANIZATION/PROJECT/STACK, and returns its last part.
func (p pulumiProject) shortStack(name string) (string, error) {
	parts := strings.Split(name, "/")
	short := parts[len(parts)-1]
	switch {
	case len(parts) != 1 && len(parts) != 3 || slices.ContainsFunc(parts, func(s string) bool { return !projectForm().MatchString(s) }):
		return "", fmt.Errorf("state.workspace names the stack, as STACK or ORGANIZATION/PROJECT/STACK; %s does not", quote(name))
	case len(parts) == 3 && parts[1] != p.Name:
		return "", fmt.Errorf("state.workspace names a stack of the project %s, and %s is that of the project %s", parts[1], p.file, p.Name)
	}
	return short, nil
}

// withSettings returns the settings of a stack with the workspace's variables, and with the secrets provider if only
// the state has it. The rest is unchanged.
func withSettings(raw []byte, project pulumiProject, variables map[string]any, secrets secretsProvider) ([]byte, error) {
	doc := yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := yaml.Unmarshal(raw, &doc); err != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
			return nil, errors.New("it is not YAML with settings")
		}
	}
	top := doc.Content[0]
	secrets.addTo(top)
	if len(variables) > 0 {
		config := settingOf(top, "config")
		if config == nil || config.Kind != yaml.MappingNode {
			config = &yaml.Node{Kind: yaml.MappingNode}
		}
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			value, err := json.Marshal(project.asDeclared(name, variables[name]))
			var n yaml.Node
			if err == nil {
				err = yaml.Unmarshal(value, &n) // JSON is YAML, and its numbers stay as they are written
			}
			if err != nil {
				return nil, fmt.Errorf("the variable %s cannot be written", quote(name))
			}
			setSetting(config, strings.TrimPrefix(name, project.Name+":"), nil) // the short form of the same key
			if !strings.Contains(name, ":") {
				name = project.Name + ":" + name
			}
			setSetting(config, name, n.Content[0])
		}
		setSetting(top, "config", config)
	}
	var out bytes.Buffer
	if len(top.Content) == 0 {
		return nil, nil
	}
	err := yaml.NewEncoder(&out).Encode(&doc)
	return out.Bytes(), err
}

// settingOf returns the value of a key; nil where there is none.
func settingOf(of *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == key {
			return of.Content[i+1]
		}
	}
	return nil
}

// setSetting gives a key a value, or removes it where the value is nil.
func setSetting(of *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == key {
			of.Content = slices.Delete(of.Content, i, i+2)
			break
		}
	}
	if value != nil {
		of.Content = append(of.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
}

// secretsProvider is how the secrets of a state are encrypted. It holds no key that is of use alone.
type secretsProvider struct {
	State struct {
		Salt         string `json:"salt"`
		URL          string `json:"url"`
		EncryptedKey string `json:"encryptedkey"`
	} `json:"state"`
}

// addTo adds it to the settings of a stack that have none. Without it, Pulumi would use the passphrase.
func (s secretsProvider) addTo(top *yaml.Node) {
	said := map[string]string{"encryptionsalt": s.State.Salt, "encryptedkey": s.State.EncryptedKey, "secretsprovider": ""}
	if s.State.EncryptedKey != "" {
		said["secretsprovider"] = s.State.URL
	}
	for key := range said {
		if settingOf(top, key) != nil {
			return
		}
	}
	for _, key := range slices.Sorted(maps.Keys(said)) {
		if said[key] != "" {
			setSetting(top, key, &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: said[key]})
		}
	}
}

// deployment is the part of a state that is read, in the form of an export or of the file of a backend. It has no
// values.
type deployment struct {
	Manifest struct {
		Time time.Time `json:"time"`
	} `json:"manifest"`
	Secrets   secretsProvider `json:"secrets_providers"`
	Resources []struct {
		URN      string    `json:"urn"`
		Type     string    `json:"type"`
		Provider string    `json:"provider"`
		Delete   bool      `json:"delete"` // it waits for its end, and another one has its place
		Created  time.Time `json:"created"`
		Modified time.Time `json:"modified"`
	} `json:"resources"`
	Pending []struct { // operations that were running when pulumi was interrupted
		Type     string `json:"type"` // such as creating
		Resource struct {
			URN string `json:"urn"`
		} `json:"resource"`
	} `json:"pending_operations"`
}

// pending lists the operations whose result pulumi does not know; empty if there are none.
func (d deployment) pending() string {
	var all []string
	for _, op := range d.Pending {
		all = append(all, op.Type+" "+op.Resource.URN)
	}
	if len(all) == 0 {
		return ""
	}
	return "pulumi was interrupted, and does not know the result of: " + text.Some(all, maxListed)
}

func readDeployment(raw []byte) (deployment, error) {
	var doc struct {
		Deployment *deployment `json:"deployment"`
		Checkpoint *struct {
			Latest *deployment `json:"latest"`
		} `json:"checkpoint"`
	}
	err := json.Unmarshal(raw, &doc)
	switch {
	case err == nil && doc.Deployment != nil:
		return *doc.Deployment, nil
	case err == nil && doc.Checkpoint != nil && doc.Checkpoint.Latest != nil:
		return *doc.Checkpoint.Latest, nil
	case err == nil && doc.Checkpoint != nil:
		return deployment{}, nil
	}
	return deployment{}, errors.New("the state of the stack is in a form that this version cannot read")
}

// document describes the state as that of terraform is described. A state of pulumi has no lineage and no serial number:
// the stack and the time of the last change take their place.
func (d deployment) document(lineage string) *document {
	n := &document{lineage: lineage, resources: len(d.managed())}
	if !d.Manifest.Time.IsZero() {
		n.serial = d.Manifest.Time.UnixMilli()
	}
	return n
}

// managed lists the resources, apart from the stack itself and the settings of providers.
func (d deployment) managed() []managed {
	var out []managed
	for _, r := range d.Resources {
		if r.Type != stackResource && !r.Delete && !strings.HasPrefix(r.Type, "pulumi:providers:") {
			out = append(out, managed{Address: r.URN, Type: text.Cut(r.Type, 255), Provider: providerOf(r.Provider)})
		}
	}
	return out
}

// since returns the changes of the resources since an earlier state, by the times that pulumi notes for each.
func (d deployment) since(before deployment) (s summary) {
	type times struct{ created, modified time.Time }
	of := func(d deployment, waiting bool) map[string]times {
		out := map[string]times{}
		for _, r := range d.Resources {
			if r.Delete == waiting {
				out[r.URN] = times{r.Created, r.Modified}
			}
		}
		return out
	}
	was, is, waits := of(before, false), of(d, false), of(d, true)
	for _, r := range d.managed() {
		t, had := was[r.Address]
		_, half := waits[r.Address]
		action := "update"
		switch now := is[r.Address]; {
		case had && t == now:
			continue
		case !had || half && t.created != now.created:
			action = "create"
		case t.created != now.created:
			action = "replace"
		}
		s.add(api.ResourceChange{Address: r.Address, Action: action, Provider: r.Provider})
	}
	for _, r := range before.managed() {
		if _, has := is[r.Address]; !has {
			s.add(api.ResourceChange{Address: r.Address, Action: "delete", Provider: r.Provider})
		}
	}
	return s
}

// dynamic says whether the provider of a resource is the code of the program itself, by the packages of it:
// https://www.pulumi.com/docs/iac/concepts/resources/dynamic-providers/.
func (d deployment) dynamic() bool {
	for _, r := range d.Resources {
		kind := strings.TrimPrefix(r.Type, "pulumi:providers:")
		if name, _, _ := strings.Cut(kind, ":"); name == "pulumi-nodejs" || name == "pulumi-python" {
			return true
		}
	}
	return false
}

// digestOfPreview is the part of a preview's JSON form that is read.
type digestOfPreview struct {
	Steps []struct {
		Op             string                     `json:"op"`
		URN            string                     `json:"urn"`
		Provider       string                     `json:"provider"`
		DiffReasons    []string                   `json:"diffReasons"`
		ReplaceReasons []string                   `json:"replaceReasons"`
		DetailedDiff   map[string]json.RawMessage `json:"detailedDiff"`
		OldState       propertiesOfStep           `json:"oldState"`
		NewState       propertiesOfStep           `json:"newState"`
	} `json:"steps"`
	Diagnostics []struct {
		Message  string `json:"message"`
		Severity string `json:"severity"`
	} `json:"diagnostics"`
	ChangeSummary map[string]int `json:"changeSummary"`
}

// propertiesOfStep are the properties of a resource before or after a step.
type propertiesOfStep struct {
	Inputs  map[string]json.RawMessage `json:"inputs"`
	Outputs map[string]json.RawMessage `json:"outputs"`
}

// differing names the properties in which two states of a resource differ; none if there is only one. A refresh looks
// at what is there, so at the outputs.
func (before propertiesOfStep) differing(after propertiesOfStep, refreshed bool) (names []string) {
	was, is := before.Inputs, after.Inputs
	if refreshed {
		was, is = before.Outputs, after.Outputs
	}
	if was == nil || is == nil {
		return nil
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is))) {
		if !bytes.Equal(was[name], is[name]) {
			names = append(names, name)
		}
	}
	return names
}

// readPreview reads the JSON form of a preview: its changes and its messages. plan is its update plan, if it has one.
func readPreview(raw, plan []byte, m mode) (summary, []string, error) {
	var doc digestOfPreview
	if err := json.Unmarshal(raw, &doc); err != nil {
		return summary{}, nil, errors.New("the preview is in a form that this version cannot read")
	}
	allowed, err := readUpdatePlan(plan)
	if err != nil {
		return summary{}, nil, err
	}
	s := summary{changes: api.Changes{Outputs: allowed.outputs()}}
	for _, step := range doc.Steps {
		action := actionOfStep(step.Op, m)
		if action == "" || typeOfURN(step.URN) == stackResource {
			continue
		}
		names := slices.Concat(step.DiffReasons, slices.Collect(maps.Keys(step.DetailedDiff)))
		if len(names) == 0 && step.Op != "create" && step.Op != "delete" { // a provider need not say what differs
			names = step.OldState.differing(step.NewState, m.refreshOnly)
		}
		r := api.ResourceChange{
			Address: step.URN, Action: action, Provider: providerOf(step.Provider), Drifted: action == "drift",
			Changed: topNames(names), Forces: topNames(step.ReplaceReasons), Imported: strings.HasPrefix(step.Op, "import"),
		}
		if r.Imported {
			s.changes.Import++
		}
		s.add(r)
	}
	if urn := allowed.beyond(s.changes.Resources); urn != "" {
		return s, nil, fmt.Errorf("the update plan allows changes of %s that the preview does not show", quote(urn))
	}
	if m.refreshOnly { // an older pulumi says only here how many there are
		s.changes.Drift = max(s.changes.Drift, doc.ChangeSummary["update"]+doc.ChangeSummary["delete"])
	}
	var said []string
	for _, d := range doc.Diagnostics[:min(len(doc.Diagnostics), maxMessages)] {
		for line := range strings.Lines(text.WithoutEscapes(d.Message)) {
			if line = strings.TrimRight(line, " \r\n\t"); line != "" {
				said = append(said, line)
			}
		}
	}
	return s, said, s.finish()
}

// actionOfStep names the action of a step; empty means none, or a part of another step.
func actionOfStep(op string, m mode) string {
	switch op {
	case "create", "update", "delete", "replace", "read", "import":
		if m.refreshOnly {
			return "drift"
		}
		return op
	case "import-replacement":
		return "replace"
	}
	return ""
}

// typeOfURN is the type of the resource that a URN names: urn:pulumi:STACK::PROJECT::PARENTS$TYPE::NAME.
func typeOfURN(urn string) string {
	parts := strings.SplitN(urn, "::", 4)
	if len(parts) < 4 {
		return ""
	}
	return parts[2][strings.LastIndex(parts[2], "$")+1:]
}

// providerOf is the package of a provider, such as aws.
func providerOf(urn string) string { return strings.TrimPrefix(typeOfURN(urn), "pulumi:providers:") }

// topNames returns the properties at which paths begin: deeper names may be values.
func topNames(paths []string) []string {
	var out []string
	for _, p := range paths {
		if i := strings.IndexAny(p, ".["); i > 0 {
			p = p[:i]
		}
		if p != "" && p[0] != '[' {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// readStackOutputs reads the output of `stack output --json`, without and with the values of secrets. An output that
// has a secret in it is one as a whole.
func readStackOutputs(raw, open []byte) (found, error) {
	var shown, opened map[string]json.RawMessage
	if errors.Join(json.Unmarshal(raw, &shown), json.Unmarshal(open, &opened)) != nil {
		return found{}, errors.New("the outputs of the stack are in a form that this version cannot read")
	}
	var f found
	v := values{seen: map[string]bool{}}
	for name, value := range shown {
		secret := bytes.Contains(value, []byte(blinded))
		if secret {
			value = opened[name]
		}
		decoded, err := number(value)
		if err != nil {
			return found{}, fmt.Errorf("the output %s is in a form that this version cannot read", quote(name))
		}
		f.add(name, decoded, secret, &v)
	}
	f.secrets = v.list
	f.sort()
	return f, nil
}

var lockLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\s*(\S+/([^/\s]+)\.json\S*): created by (.+) at (\S+)\s*$`)
})

// lockOfPulumi reads the first lock of those that somebody else holds.
func lockOfPulumi(printed string) *api.Lock {
	if !strings.Contains(printed, "the stack is currently locked") {
		return nil
	}
	m := lockLine().FindStringSubmatch(text.WithoutEscapes(printed))
	if m == nil {
		return nil
	}
	file, _, _ := strings.Cut(m[1], "?")
	return lockOf(map[string]string{"ID": m[2], "Path": file, "Who": m[3], "Created": m[4], "Operation": "pulumi"})
}

// declaredBackend is the backend that the source or the environment declares. A token alone means Pulumi Cloud.
func declaredBackend(p pulumiProject, getenv func(string) string) (address string, code declared) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	address = cmp.Or(getenv("PULUMI_BACKEND_URL"), p.Backend.URL)
	scheme, _, _ := strings.Cut(address, "://")
	switch {
	case address == "" && getenv("PULUMI_ACCESS_TOKEN") != "":
		return address, declared{backend: "https"}
	case scheme == "file":
		return address, declared{backend: "local"}
	}
	return address, declared{backend: scheme}
}

// withoutQuery is an address without its query, which only says how to reach it.
func withoutQuery(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// bucketURL is the address of a backend in a bucket.
func bucketURL(s api.State, prefix string) string {
	q := url.Values{"awssdk": {"v2"}} // older versions of pulumi had another one, which knows less
	if region := cmp.Or(s.Region, map[bool]string{true: "us-east-1"}[s.Endpoint != ""]); region != "" {
		q.Set("region", region)
	}
	if s.Endpoint != "" {
		q.Set("endpoint", s.Endpoint)
		q.Set("s3ForcePathStyle", "true")
	}
	if s.KMSKeyARN != "" {
		q.Set("ssetype", "aws:kms")
		q.Set("kmskeyid", s.KMSKeyARN)
	}
	return "s3://" + s.Bucket + "/" + prefix + "?" + q.Encode()
}
