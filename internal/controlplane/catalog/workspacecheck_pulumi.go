package catalog

import (
	"regexp"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var (
	stackForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,90}$|^[A-Za-z0-9_-]{1,40}/[A-Za-z0-9_.-]{1,60}/[A-Za-z0-9_.-]{1,60}$`)
	})
	providerForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:default|passphrase|(?:awskms|azurekeyvault|gcpkms|hashivault)://[^\s@]+)$`)
	})
)

// checkStack refuses a setting that pulumi cannot have, or that only pulumi has.
func checkStack(w api.Workspace) error {
	s := api.State{}
	if w.State != nil {
		s = *w.State
	}
	switch {
	case w.Engine != api.EnginePulumi && s.SecretsProvider != "":
		return workflow.Invalid("state.secrets_provider", "secrets_provider goes with engine pulumi")
	case w.Engine != api.EnginePulumi && w.Install != nil:
		return workflow.Invalid("install", "install goes with engine pulumi: remove it from a workspace with engine %s", w.Engine)
	case w.Engine != api.EnginePulumi:
		return nil
	case s.Workspace == "":
		return workflow.Invalid("state.workspace", "engine pulumi needs the name of its stack, such as dev or acme/network/dev, in state.workspace")
	case len(s.Workspace) > 90 || !stackForm().MatchString(s.Workspace):
		return workflow.Invalid("state.workspace", "a stack is named STACK or ORGANIZATION/PROJECT/STACK, with at most 90 characters; %q is not", text.Cut(s.Workspace, 100))
	case len(s.BackendConfig) > 0:
		return workflow.Invalid("state.backend_config", "backend_config goes with terraform and tofu; for pulumi, set PULUMI_BACKEND_URL in environment")
	case s.SecretsProvider != "" && !providerForm().MatchString(s.SecretsProvider):
		return workflow.Invalid("state.secrets_provider", "secrets_provider is default, passphrase, or a key as awskms://, azurekeyvault://, gcpkms:// or hashivault://, without credentials in it")
	}
	return nil
}
