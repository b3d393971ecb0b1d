package api

// Names of the session tags that identify a run, for the role's trust policy and in the trail of its sessions.
const (
	TagOrganization = "organization"
	TagWorkspace    = "workspace"    // its name, for people: no policy may rely on it
	TagWorkspaceID  = "workspace_id" // its id, which no other workspace ever has, and the name of its state's place
)

// Role is the role of a run's cloud account: the runner assumes it, resolves the run's secrets with it and
// serves its credentials to the engine. All fields come from the control plane, none from the code of the run.
type Role struct {
	ARN        string            `json:"arn" doc:"ARN of the role" example:"arn:aws:iam::123456789012:role/dayfly/default/network"`
	ExternalID string            `json:"external_id" doc:"The workspace's id, which a trust policy compares with sts:ExternalId" example:"ws_01k1xz4m2p7q9r3s5t8v"`
	Tags       map[string]string `json:"tags" doc:"Session tags: organization, workspace and workspace_id" example:"{\"organization\":\"default\",\"workspace\":\"network\"}"`
}
