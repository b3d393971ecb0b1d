package discover

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// needed are the settings without which a backend does not know where its state is.
var needed = map[string][]string{
	"s3": {"bucket", "key"}, "gcs": {"bucket"}, "azurerm": {"storage_account_name", "container_name", "key"},
	"http": {"address"}, "consul": {"path"}, "kubernetes": {"secret_suffix"}, "oss": {"bucket"}, "cos": {"bucket"},
}

// settingsOf are the settings that each backend has. A file which sets nothing else completes it.
var settingsOf = map[string]string{
	"s3": `bucket key region profile encrypt acl kms_key_id dynamodb_table dynamodb_endpoint use_lockfile workspace_key_prefix role_arn
		session_name external_id assume_role assume_role_with_web_identity assume_role_duration_seconds assume_role_policy assume_role_policy_arns
		assume_role_tags assume_role_transitive_tag_keys access_key secret_key token shared_config_files shared_credentials_file
		shared_credentials_files endpoint endpoints iam_endpoint sts_endpoint sts_region force_path_style use_path_style use_fips_endpoint
		use_dualstack_endpoint skip_credentials_validation skip_metadata_api_check skip_region_validation skip_requesting_account_id
		skip_s3_checksum sse_customer_key max_retries retry_mode allowed_account_ids forbidden_account_ids custom_ca_bundle http_proxy https_proxy
		no_proxy insecure ec2_metadata_service_endpoint ec2_metadata_service_endpoint_mode use_legacy_workflow`,
	"gcs": `bucket prefix credentials access_token impersonate_service_account impersonate_service_account_delegates encryption_key
		kms_encryption_key storage_custom_endpoint project region path`, // the last three: before Terraform 1.0
	"azurerm": `storage_account_name container_name key resource_group_name subscription_id tenant_id client_id client_secret environment
		metadata_host snapshot endpoint access_key sas_token use_azuread_auth use_oidc use_msi use_cli msi_endpoint client_certificate_path
		client_certificate_password client_certificate oidc_request_url oidc_request_token oidc_token oidc_token_file_path
		ado_pipeline_service_connection_id use_aks_workload_identity lookup_blob_endpoint arm_client_id arm_client_secret arm_subscription_id arm_tenant_id`,
	"http": `address update_method lock_address lock_method unlock_address unlock_method username password skip_cert_verification retry_max
		retry_wait_min retry_wait_max client_ca_certificate_pem client_certificate_pem client_private_key_pem headers`,
	"consul":     "path access_token address scheme datacenter http_auth gzip lock ca_file cert_file key_file",
	"kubernetes": "secret_suffix labels namespace in_cluster_config load_config_file host username password insecure client_certificate client_key cluster_ca_certificate config_path config_paths config_context config_context_auth_info config_context_cluster token exec",
	"pg":         "conn_str schema_name skip_schema_creation skip_table_creation skip_index_creation table_name index_name",
	"oss":        "bucket prefix key region access_key secret_key security_token ecs_role_name endpoint encrypt acl tablestore_endpoint tablestore_table profile shared_credentials_file assume_role",
	"cos":        "bucket prefix key region secret_id secret_key security_token encrypt acl accelerate endpoint domain assume_role",
	"remote":     "hostname organization token workspaces",
	"local":      "path workspace_dir",
}

// lacks are the settings that the backend of a module needs, and that neither its code nor others give it.
func (m *module) lacks(given map[string]any) (names []string) {
	for _, name := range needed[m.code.Backend] {
		if m.code.Settings[name] == "" && !slices.Contains(m.code.Computed, name) && given[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// isSettings reports whether a file has the settings that the backend of a module lacks: it sets nothing but settings
// of that backend, and one that it does not have. Where all of the file may be variables too, its name or a setting
// that the backend needs must show which of both it is.
func (m *module) isSettings(f *file) bool {
	of, needs := strings.Fields(settingsOf[m.code.Backend]), m.lacks(nil)
	lacked, declared, shown := false, true, strings.Contains(f.name, "backend")
	for _, name := range f.names {
		if !slices.Contains(of, name) {
			return false
		}
		_, isVariable := m.code.Variables[name]
		lacked, declared = lacked || m.code.Settings[name] == "", declared && isVariable
		shown = shown || slices.Contains(needs, name)
	}
	if isVariables(f.name) {
		return f.settings != nil && lacked && shown && !declared
	}
	return f.settings != nil && lacked && (shown || len(m.code.Settings)+len(m.code.Computed) == 0)
}

// readSettings reads small files, whatever they are called, of which each may have settings that a backend lacks.
func (w *walk) readSettings(roots []*module) (files []*file) {
	const maxSize, maxRead = 4 << 10, 64 << 20
	completed := slices.DeleteFunc(slices.Clone(roots), func(m *module) bool { return settingsOf[m.code.Backend] == "" })
	read := 0
	for _, name := range w.small {
		if len(completed) == 0 || read > maxRead {
			return files
		}
		content, err := readSmall(w.fsys, name, maxSize)
		read += len(content)
		f := &file{name: name}
		if err != nil || isEncrypted(name, content) {
			continue
		}
		if f.read(content); slices.ContainsFunc(completed, func(m *module) bool { return m.isSettings(f) }) {
			files = append(files, f)
		}
	}
	return files
}

// complete writes the settings of files into a workspace, without those that are secrets.
func (m *module) complete(w *Workspace, files []*file) {
	given := api.Values{}
	for _, f := range files {
		for _, name := range slices.Sorted(maps.Keys(f.settings)) {
			if api.SecretSetting(name) {
				w.Notes = append(w.Notes, fmt.Sprintf("%s of %s may be a secret, and is not carried over: store it with dayfly secret set, for the environment variable that the backend reads", name, m.rel(f.name)))
				continue
			}
			given[name] = f.settings[name]
		}
	}
	if len(given) > 0 {
		if w.State == nil {
			w.State = &api.State{}
		}
		w.State.BackendConfig = given
	}
	if lacks := m.lacks(given); len(lacks) > 0 {
		note := "the backend lacks " + strings.Join(lacks, ", ") + ": write it into state.backend_config"
		if others := slices.DeleteFunc(slices.Clone(m.configs), func(f *file) bool { return slices.Contains(files, f) }); len(others) > 0 {
			note += ", as in one of " + text.Some(m.rels(others), maxNamed)
		}
		w.Notes = append(w.Notes, note)
	}
}

func (m *module) rels(files []*file) (names []string) {
	for _, f := range files {
		names = append(names, path.Clean(m.rel(f.name)))
	}
	return names
}
