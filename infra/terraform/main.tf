# A pool stack, from the same template that sam and make deploy use: it is transformed and reviewed once, and
# handed to CloudFormation as it was tested. So there is one definition of what runs, and nothing to drift.
#
# The account needs two roles that it has once: that of ECS (aws iam create-service-linked-role --aws-service-name
# ecs.amazonaws.com), and one with which API Gateway writes logs (infra/artifacts.yaml with ApiGatewayLogs=true).

locals {
  # The functions of the template, and the zip of each.
  functions = {
    Poller      = "poller"
    Dispatcher  = "dispatcher"
    DeadLetters = "dispatcher"
    Status      = "status"
    Reaper      = "reaper"
    Deliverer   = "deliverer"
  }
  zips = { for logical, name in local.functions : logical => "${var.functions_directory}/${name}.zip" }

  # Every version has a place of its own, so that going back is the apply of before.
  prefix = "dayfly/${var.stack_name}/${substr(sha256(join("", concat(
    [for logical in sort(keys(local.zips)) : filesha256(local.zips[logical])],
    [filesha256("${path.module}/../transformed/pool.json"), filesha256("${path.module}/../transformed/network.json")],
  ))), 0, 16)}"

  # An API whose endpoint is another one, or whose policy names another role, must be deployed anew, which CloudFormation
  # does for another name only.
  network = substr(sha256("${var.network_mode} ${var.vpc_id} ${var.role_path} ${var.pool_name}"), 0, 16)

  # The transform left marks where code and templates lie.
  template = replace(replace(replace(jsonencode(jsondecode(file("${path.module}/../transformed/pool.json"))),
    "https://s3.amazonaws.com/packaged/", "https://${var.artifacts_bucket}.s3.${data.aws_region.current.region}.${data.aws_partition.current.dns_suffix}/${local.prefix}/"),
    "\"S3Bucket\":\"packaged\",\"S3Key\":\"", "\"S3Bucket\":\"${var.artifacts_bucket}\",\"S3Key\":\"${local.prefix}/"),
  "\"StatusApiDeployment", "\"StatusApiDeployment${local.network}")
}

# As make deploy does: in mode endpoints-only tasks may reach S3, and nothing else that is not named.
data "aws_prefix_list" "s3" {
  count = var.network_mode == "endpoints-only" && var.s3_prefix_list_id == "" ? 1 : 0
  name  = "com.amazonaws.${data.aws_region.current.region}.s3"
}

data "aws_region" "current" {}

data "aws_partition" "current" {}

resource "aws_s3_object" "function" {
  for_each = local.zips

  bucket                 = var.artifacts_bucket
  key                    = "${local.prefix}/${each.key}.zip"
  source                 = each.value
  source_hash            = filesha256(each.value)
  server_side_encryption = "AES256"
}

resource "aws_s3_object" "network" {
  bucket                 = var.artifacts_bucket
  key                    = "${local.prefix}/Network.yaml"
  content                = jsonencode(jsondecode(file("${path.module}/../transformed/network.json")))
  content_type           = "application/json"
  server_side_encryption = "AES256"
}

resource "aws_s3_object" "pool" {
  bucket                 = var.artifacts_bucket
  key                    = "${local.prefix}/Pool.json"
  content                = local.template
  content_type           = "application/json"
  server_side_encryption = "AES256"
}

resource "aws_cloudformation_stack" "pool" {
  name         = var.stack_name
  template_url = "https://${var.artifacts_bucket}.s3.${data.aws_region.current.region}.${data.aws_partition.current.dns_suffix}/${aws_s3_object.pool.key}"
  capabilities = ["CAPABILITY_IAM"]
  tags         = var.tags

  parameters = {
    PoolName                 = var.pool_name
    ServiceUrl               = var.service_url
    PoolIdentity             = var.pool_identity
    OrganizationName         = var.organization_name
    ControlPlaneRoleArn      = var.control_plane_role_arn
    EnabledWorkflowTypes     = var.enabled_workflow_types
    PollingWindow            = var.polling_window
    DeliverySecrets          = join(",", var.delivery_secrets)
    PrivateDeliveries        = join(",", var.private_deliveries)
    ImageUri                 = var.image_uri
    RepositoryName           = var.repository_name
    TaskArchitecture         = var.task_architecture
    EphemeralStorageGiB      = tostring(var.ephemeral_storage_gib)
    EngineDownloads          = join(",", sort(var.engine_downloads))
    ProviderMirrorBucket     = var.provider_mirror_bucket
    TaskTags                 = join(",", [for key in sort(keys(var.task_tags)) : "${key}=${var.task_tags[key]}"])
    SpotPolicy               = var.spot_policy
    MaxDiskGiB               = tostring(var.max_disk_gib)
    RunnerImages             = join(",", [for name in sort(keys(var.runner_images)) : "${name}=${var.runner_images[name]}"])
    LaunchRate               = tostring(var.launch_rate)
    StatusRateLimit          = tostring(var.status_rate_limit)
    StatusBurstLimit         = tostring(var.status_burst_limit)
    DirectLaunch             = tostring(var.direct_launch)
    ReserveConcurrency       = var.reserve_concurrency ? "yes" : "no"
    NetworkMode              = var.network_mode
    VpcId                    = var.vpc_id
    SubnetIds                = join(",", var.subnet_ids)
    RouteTableIds            = join(",", var.route_table_ids)
    VpcCidr                  = var.vpc_cidr
    AvailabilityZones        = join(",", var.availability_zones)
    WorkspaceAccounts        = join(",", var.workspace_accounts)
    VpcHasEndpoints          = tostring(var.vpc_has_endpoints)
    S3EndpointIds            = join(",", var.s3_endpoint_ids)
    S3PrefixListId           = join("", concat([var.s3_prefix_list_id], data.aws_prefix_list.s3[*].id))
    EndpointSecurityGroupId  = var.endpoint_security_group_id
    EgressCidr               = var.egress_cidr
    TaskSecurityGroupIds     = join(",", var.task_security_group_ids)
    FunctionSubnetIds        = join(",", var.function_subnet_ids)
    FunctionSecurityGroupIds = join(",", var.function_security_group_ids)
    GuardDuty                = var.guard_duty
    AllowSshEgress           = tostring(var.allow_ssh_egress)
    HttpsProxy               = var.https_proxy
    PreapprovedHooks         = join(",", var.preapproved_hooks)
    VaultAddress             = var.vault_address
    VaultNamespace           = var.vault_namespace
    VaultAuthMount           = var.vault_auth_mount
    VaultRole                = var.vault_role
    VaultServerId            = var.vault_server_id
    SecretNames              = var.secret_names
    RolePath                 = var.role_path
    PermissionsBoundaryArn   = var.permissions_boundary_arn
    KmsKeyArn                = var.kms_key_arn
    LogRetentionDays         = tostring(var.log_retention_days)
    StateVersionDays         = tostring(var.state_version_days)
    ArtifactRetentionDays    = tostring(var.artifact_retention_days)
    ArtifactReaders          = join(",", var.artifact_readers)
    AlarmTopicArn            = var.alarm_topic_arn
    ContainerInsights        = var.container_insights
    LogLevel                 = var.log_level
    ReaperDryRun             = tostring(var.reaper_dry_run)
  }

  lifecycle {
    precondition {
      condition     = length(var.function_subnet_ids) > 0 || !can(regex("-vpce-[0-9a-f]+\\.execute-api\\.", var.service_url))
      error_message = "The API at service_url is private, and functions outside of a VPC do not reach it: set function_subnet_ids and function_security_group_ids."
    }
  }

  depends_on = [aws_s3_object.function, aws_s3_object.network]
}
