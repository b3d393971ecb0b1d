# The parameters of the pool's template, under names of Terraform's kind. A test compares them with the template.

variable "pool_name" {
  description = "The pool's name on the control plane. The roles of its workspaces are under the path /dayfly/NAME/."
  type        = string
  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{3,64}$", var.pool_name))
    error_message = "It has 3 to 64 letters, digits, _ or -."
  }
}

variable "service_url" {
  description = "The address of the control plane."
  type        = string
  validation {
    condition     = can(regex("^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$", var.service_url))
    error_message = "It is an address that begins with https://."
  }
}

variable "pool_identity" {
  description = "How the functions show that they are the pool. secret - by a stored pool token. aws - by their roles, as AWS signs them for a control plane that trusts this account (docs/aws.md); nothing is stored."
  type        = string
  default     = "secret"
  validation {
    condition     = contains(["secret", "aws"], var.pool_identity)
    error_message = "It is secret or aws."
  }
}

variable "organization_name" {
  description = "With PoolIdentity aws, the organization of the pool on the control plane."
  type        = string
  default     = "default"
  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,64}$", var.organization_name))
    error_message = "It has 1 to 64 letters, digits, _ or -."
  }
}

variable "control_plane_role_arn" {
  description = "The role of a control plane in another account that may wake the poller; empty if it is in this account, or does not wake pollers."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(arn:aws[a-z-]*:iam::[0-9]{12}:role/.+)?$", var.control_plane_role_arn))
    error_message = "It is the ARN of a role, or empty."
  }
}

variable "enabled_workflow_types" {
  description = "The workflow types that this stack claims; empty means all that the pool allows."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^((deployment|insights_scan|policy_evaluation)(,(deployment|insights_scan|policy_evaluation))*)?$", var.enabled_workflow_types))
    error_message = "It is a list of deployment, insights_scan and policy_evaluation, divided by commas."
  }
}

variable "polling_window" {
  description = "How long each poll waits for work. 0s polls once a minute and is woken by the control plane; 60s waits all the time, and costs $35 a month more."
  type        = string
  default     = "0s"
  validation {
    condition     = can(regex("^([0-9]|[1-5][0-9]|60)s$", var.polling_window))
    error_message = "It is a number of seconds from 0s to 60s."
  }
}

variable "delivery_secrets" {
  description = "Secrets that deliveries may name, with addresses and signing keys of notifications. An ARN may have * in it. Empty means that deliveries can name none."
  type        = list(string)
  default     = []
  validation {
    condition     = alltrue([for arn in var.delivery_secrets : can(regex("^(arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!*?-]+)?$", arn))])
    error_message = "They are ARNs of secrets."
  }
}

variable "private_deliveries" {
  description = "Hosts, addresses and networks that deliveries may call although they are private; empty means none."
  type        = list(string)
  default     = []
  validation {
    condition     = can(regex("^[A-Za-z0-9.:/,_ -]*$", join(",", var.private_deliveries)))
    error_message = "They are hosts, addresses and networks such as 10.1.0.0/16."
  }
}

variable "image_uri" {
  description = "The runner's image, in ECR, under a tag that is never moved."
  type        = string
  validation {
    condition     = can(regex("^[0-9]{12}\\.dkr\\.ecr\\.[a-z0-9-]+\\.amazonaws\\.com(\\.cn)?/[a-z0-9._/-]+(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})$", var.image_uri))
    error_message = "It is an image in ECR with its tag or digest."
  }
}

variable "repository_name" {
  description = "The repository of the image, from which tasks may pull."
  type        = string
  default     = "dayfly-runner"
  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9._/-]{1,255}$", var.repository_name))
    error_message = "It matches ^[a-z0-9][a-z0-9._/-]{1,255}$."
  }
}

variable "task_architecture" {
  description = "The processor architecture of tasks; it must be that of the image. The availability zone use1-az3 does not have ARM64 (AvailabilityZones)."
  type        = string
  default     = "ARM64"
  validation {
    condition     = contains(["ARM64", "X86_64"], var.task_architecture)
    error_message = "It is one of ARM64, X86_64."
  }
}

variable "ephemeral_storage_gib" {
  description = "The size of a task's disk in GiB. The first 20 are free."
  type        = number
  default     = 21
  validation {
    condition     = var.ephemeral_storage_gib >= 21 && var.ephemeral_storage_gib <= 200
    error_message = "It lies between 21 and 200."
  }
}

variable "engine_downloads" {
  description = "Engines of which a task downloads and checks versions that the image does not have: terraform, tofu. It needs a way out."
  type        = set(string)
  default     = []
  validation {
    condition     = length(setsubtract(var.engine_downloads, ["terraform", "tofu"])) == 0
    error_message = "It has terraform, tofu or both."
  }
}

variable "provider_mirror_bucket" {
  description = "Bucket of the Region with a mirror of providers, which tasks read without signing; empty means none."
  type        = string
  default     = ""
}

variable "task_tags" {
  description = "Tags of each task, such as a cost center's; up to 45. Tags of the stack do not reach tasks."
  type        = map(string)
  default     = {}
  validation {
    condition     = length(var.task_tags) <= 45 && alltrue([for k, v in var.task_tags : can(regex("^[A-Za-z0-9 +._:/@-]{1,128}=[A-Za-z0-9 +.=_:/@-]{0,256}$", "${k}=${v}"))])
    error_message = "It has up to 45 tags, of letters, digits, spaces and +-._:/@."
  }
}

variable "spot_policy" {
  description = "Runs that may use Spot capacity; reads means previews, scans and evaluations. Spot stops a task with two minutes' notice."
  type        = string
  default     = "reads"
  validation {
    condition     = contains(["never", "reads", "all"], var.spot_policy)
    error_message = "It is one of never, reads, all."
  }
}

variable "max_disk_gib" {
  description = "The largest disk in GiB that a workspace may ask for (disk_gib). A smaller one than 21 is that of every task."
  type        = number
  default     = 20
  validation {
    condition     = var.max_disk_gib >= 20 && var.max_disk_gib <= 200
    error_message = "It lies between 20 and 200."
  }
}

variable "runner_images" {
  description = "Task definitions that workspaces may ask for by name (image). The family of each begins with the stack's name and -runner-, and its roles are those of the pool's own task definition."
  type        = map(string)
  default     = {}
  validation {
    condition     = alltrue([for k, v in var.runner_images : can(regex("^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}=[A-Za-z0-9_:/.-]{1,512}$", "${k}=${v}"))])
    error_message = "It has names of letters, digits, _, . and -, each with a task definition."
  }
}

variable "launch_rate" {
  description = "RunTask calls a second that this pool may make. An account may make 20 in a Region, for all of its pools together."
  type        = number
  default     = 20
  validation {
    condition     = var.launch_rate >= 1 && var.launch_rate <= 20
    error_message = "It lies between 1 and 20."
  }
}

variable "status_rate_limit" {
  description = "Requests a second that the status API accepts of tasks: 10/3 of the control plane's OrganizationLimit, from 100 to 10000."
  type        = number
  default     = 500
  validation {
    condition     = var.status_rate_limit >= 10 && var.status_rate_limit <= 10000
    error_message = "It lies between 10 and 10000."
  }
}

variable "status_burst_limit" {
  description = "Requests of tasks that the status API accepts at once (burst): twice status_rate_limit, from 200 to 5000."
  type        = number
  default     = 1000
  validation {
    condition     = var.status_burst_limit >= 10 && var.status_burst_limit <= 5000
    error_message = "It lies between 10 and 5000."
  }
}

variable "direct_launch" {
  description = "Whether the poller itself starts the tasks of the first few jobs while the queue of launches is short, which saves a quarter of a second. It then has the permission to; otherwise only the dispatcher has."
  type        = bool
  default     = true
}

variable "reserve_concurrency" {
  description = "Whether functions have concurrent executions of the account reserved. no is for a new account, which cannot reserve any; other functions of the account can then keep these from running."
  type        = bool
  default     = true
}

variable "network_mode" {
  description = "endpoints-only: private subnets without Internet access, AWS through endpoints. nat: private subnets with a NAT gateway, or yours that have Internet access. public: public subnets, no inbound connections."
  type        = string
  default     = "endpoints-only"
  validation {
    condition     = contains(["endpoints-only", "nat", "public"], var.network_mode)
    error_message = "It is one of endpoints-only, nat, public."
  }
}

variable "vpc_id" {
  description = "The VPC of the tasks. Empty creates one."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(vpc-[0-9a-f]{8,17})?$", var.vpc_id))
    error_message = "It is the id of a VPC, or empty."
  }
}

variable "subnet_ids" {
  description = "The VPC's subnets for tasks, in different availability zones. Empty only where a VPC is created."
  type        = list(string)
  default     = []
}

variable "route_table_ids" {
  description = "Route tables of these subnets, for the S3 gateway of mode endpoints-only."
  type        = list(string)
  default     = []
}

variable "vpc_cidr" {
  description = "The address range of a VPC that is created here; two subnets of 512 addresses are made in it, and each task takes one address. It cannot be changed later."
  type        = string
  default     = "10.73.0.0/22"
  validation {
    condition     = can(regex("^[0-9]{1,3}(\\.[0-9]{1,3}){3}/(1[6-9]|2[0-2])$", var.vpc_cidr))
    error_message = "It is an address range from /16 to /22."
  }
}

variable "availability_zones" {
  description = "The two zones of a VPC that is created here, such as us-east-1b,us-east-1c; empty takes the first two of the account. They cannot be changed later."
  type        = list(string)
  default     = []
}

variable "workspace_accounts" {
  description = "Other accounts that have roles, states or secrets of workspaces; the endpoints of mode endpoints-only allow them too."
  type        = list(string)
  default     = []
}

variable "vpc_has_endpoints" {
  description = "Whether the VPC already has endpoints, with private names, for ecr.api, ecr.dkr, logs, secretsmanager and sts, and a gateway to S3, such as those of another pool; a VPC can have each only once."
  type        = bool
  default     = false
}

variable "s3_prefix_list_id" {
  description = "The Region's prefix list of S3, which mode endpoints-only needs; empty looks it up."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(pl-[0-9a-f]{8,17})?$", var.s3_prefix_list_id))
    error_message = "It is the id of a prefix list, or empty."
  }
}

variable "s3_endpoint_ids" {
  description = "The endpoints through which tasks reach S3, where this stack makes none. Only through them are artifacts sent and fetched then. Empty binds them to no endpoint."
  type        = list(string)
  default     = []
  validation {
    condition     = alltrue([for id in var.s3_endpoint_ids : can(regex("^(vpce-[0-9a-f]{8,17})?$", id))])
    error_message = "They are ids of endpoints."
  }
}

variable "endpoint_security_group_id" {
  description = "With vpc_has_endpoints, the security group of these endpoints. Tasks get a rule to it, and it gets a rule from tasks."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(sg-[0-9a-f]{8,17})?$", var.endpoint_security_group_id))
    error_message = "It is the id of a security group, or empty."
  }
}

variable "egress_cidr" {
  description = "Addresses inside your network that tasks in mode endpoints-only may reach over HTTPS (endpoints of yours, git), and over SSH and the proxy's port where allow_ssh_egress and https_proxy are set."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^([0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9]{1,2})?$", var.egress_cidr))
    error_message = "It is an address range such as 10.0.0.0/16, or empty."
  }
}

variable "task_security_group_ids" {
  description = "Security groups of yours that tasks get besides that of the stack, up to four, for other addresses that they may reach."
  type        = list(string)
  default     = []
  validation {
    condition     = length(var.task_security_group_ids) <= 4
    error_message = "It has up to four ids: a task has five security groups at most."
  }
}

variable "function_subnet_ids" {
  description = "Subnets in which the stack's functions run, for a control plane whose API is private; they need not be those of tasks. They must reach that API, SQS, Secrets Manager and ECS. Empty means that the functions run in no VPC."
  type        = list(string)
  default     = []
  validation {
    condition     = alltrue([for id in var.function_subnet_ids : can(regex("^subnet-[0-9a-f]{8,17}$", id))])
    error_message = "It has ids of subnets."
  }
}

variable "function_security_group_ids" {
  description = "With function_subnet_ids, the security groups of the functions. They let out HTTPS; nothing comes in."
  type        = list(string)
  default     = []
  validation {
    condition     = length(var.function_security_group_ids) <= 5
    error_message = "It has up to five ids: a function has five security groups at most."
  }
}

variable "guard_duty" {
  description = "With runtime monitoring of GuardDuty, the account of its agent in this Region, as infra/guardduty-agents has it; make deploy takes yes. no leaves tasks without the rights that the agent needs."
  type        = string
  default     = "no"
  validation {
    condition     = can(regex("^(no|[0-9]{12})$", var.guard_duty))
    error_message = "It is the id of an account, or no."
  }
}

variable "allow_ssh_egress" {
  description = "Whether tasks may open SSH connections (git over SSH); in mode endpoints-only to egress_cidr."
  type        = bool
  default     = false
}

variable "https_proxy" {
  description = "A proxy for the outbound connections of tasks and engines; empty means none."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(https?://[A-Za-z0-9.-]+:[0-9]{1,5})?$", var.https_proxy))
    error_message = "It is an address such as http://proxy.example.com:3128, without a password, or empty."
  }
}

variable "preapproved_hooks" {
  description = "The SHA-256 of each hook that a workspace may have, as dayfly hook digest prints it; [\"none\"] allows no hook, an empty list every hook."
  type        = list(string)
  default     = []
  validation {
    condition     = can(regex("^(none|[0-9a-f]{64}(,[0-9a-f]{64}){0,49})?$", join(",", var.preapproved_hooks)))
    error_message = "It is a list of up to 50 digests, or [\"none\"], or empty."
  }
}

variable "vault_address" {
  description = "A Vault server whose KV secrets engines workspaces may name (vault:PATH#KEY); empty means none. Tasks must reach it."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?)?$", var.vault_address))
    error_message = "It is an address that begins with https://, or empty."
  }
}

variable "vault_namespace" {
  description = "With vault_address, the namespace of Vault Enterprise; empty means none."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^[A-Za-z0-9_./-]{0,255}$", var.vault_namespace))
    error_message = "It is the path of a namespace, or empty."
  }
}

variable "vault_auth_mount" {
  description = "With vault_address, where the AWS auth method is mounted. A run logs in as the role of its workspace."
  type        = string
  default     = "aws"
  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$", var.vault_auth_mount))
    error_message = "It is the path of an auth method, such as aws."
  }
}

variable "vault_role" {
  description = "With vault_address, the role of Vault with which runs log in; empty means the one with the name of the IAM role."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{0,128}$", var.vault_role))
    error_message = "It is the name of a role of the AWS auth method, or empty."
  }
}

variable "vault_server_id" {
  description = "With vault_address, the value that runs sign for the header X-Vault-AWS-IAM-Server-ID; empty means no header."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^[A-Za-z0-9._:/-]{0,255}$", var.vault_server_id))
    error_message = "It is the value of iam_server_id_header_value of the auth method, or empty."
  }
}

variable "secret_names" {
  description = "stack: names of secrets begin with that of the stack. generated: CloudFormation chooses them, as in stacks of version 0.1.0. Another value makes new secrets."
  type        = string
  default     = "generated"
  validation {
    condition     = contains(["stack", "generated"], var.secret_names)
    error_message = "It is stack or generated."
  }
}

variable "role_path" {
  description = "The path of the stack's roles, below which each pool has its own."
  type        = string
  default     = "/dayfly-stack/"
  validation {
    condition     = can(regex("^/([A-Za-z0-9_+=,.@-]{1,128}/){0,4}$", var.role_path)) && !startswith(var.role_path, "/dayfly/")
    error_message = "It is a path such as /teams/platform/ that begins and ends with / and is not below /dayfly/, where roles of workspaces are."
  }
}

variable "permissions_boundary_arn" {
  description = "The permissions boundary of every role of the stack; empty means none."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/.+)?$", var.permissions_boundary_arn))
    error_message = "It is the ARN of a policy, or empty."
  }
}

variable "kms_key_arn" {
  description = "A key of yours for queues, secrets, logs, state and the disks of tasks; its policy must let logs, events and fargate use it (docs/aws-permissions.md). Empty means keys that AWS manages."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)?$", var.kms_key_arn))
    error_message = "It is the ARN of a key, or empty."
  }
}

variable "log_retention_days" {
  description = "How long logs are kept, in days."
  type        = number
  default     = 30
  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "It is one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653."
  }
}

variable "state_version_days" {
  description = "How long earlier versions of an engine's state are kept, in days."
  type        = number
  default     = 90
  validation {
    condition     = var.state_version_days >= 1 && var.state_version_days <= 3650
    error_message = "It lies between 1 and 3650."
  }
}

variable "artifact_retention_days" {
  description = "How long artifacts of runs are kept, in days. Not less than the organization's own setting on the control plane."
  type        = number
  default     = 90
  validation {
    condition     = var.artifact_retention_days >= 1 && var.artifact_retention_days <= 3650
    error_message = "It lies between 1 and 3650."
  }
}

variable "artifact_readers" {
  description = "Roles and users of this account that may get artifacts, and place a state that is to be pushed, if their own policies allow it too. An ARN may have * in it. Empty means nobody."
  type        = list(string)
  default     = []
  validation {
    condition     = alltrue([for arn in var.artifact_readers : can(regex("^(arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/.+)?$", arn))])
    error_message = "They are ARNs of roles and users."
  }
}

variable "alarm_topic_arn" {
  description = "The topic that alarms are sent to; empty means that they are not sent."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:.+)?$", var.alarm_topic_arn))
    error_message = "It is the ARN of a topic, or empty."
  }
}

variable "container_insights" {
  description = "Whether ECS measures the cluster and its tasks (Container Insights). Nothing of Dayfly reads these metrics, which AWS charges for."
  type        = string
  default     = "disabled"
  validation {
    condition     = contains(["disabled", "enabled", "enhanced"], var.container_insights)
    error_message = "It is one of disabled, enabled, enhanced."
  }
}

variable "log_level" {
  description = "The log level of the functions."
  type        = string
  default     = "info"
  validation {
    condition     = contains(["debug", "info"], var.log_level)
    error_message = "It is one of debug, info."
  }
}

variable "reaper_dry_run" {
  description = "Whether the reaper only logs its actions and takes none."
  type        = bool
  default     = false
}

# What only the module needs.

variable "stack_name" {
  description = "The name of the stack. The poller is named after it: dayfly-wake-NAME."
  type        = string
  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9-]{0,51}$", var.stack_name))
    error_message = "It has up to 52 letters, digits and -, and begins with a letter."
  }
}

variable "artifacts_bucket" {
  description = "An S3 bucket of the same Region that takes the functions' code and the templates."
  type        = string
}

variable "functions_directory" {
  description = "Where make functions put the zips: dist/functions of a checkout, or of a release."
  type        = string
}

variable "tags" {
  description = "Tags of everything that the stack makes."
  type        = map(string)
  default     = {}
}
