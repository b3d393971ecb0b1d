# The outputs of the stack.

output "artifacts_bucket" {
  description = "The bucket of artifacts. It is kept when the stack is deleted, and its objects expire."
  value       = aws_cloudformation_stack.pool.outputs["ArtifactsBucket"]
}

output "cluster" {
  description = "The cluster of tasks."
  value       = aws_cloudformation_stack.pool.outputs["Cluster"]
}

output "pool_token_secret" {
  description = "The secret for the pool's token; empty with pool_identity aws."
  value       = try(aws_cloudformation_stack.pool.outputs["PoolTokenSecret"], "")
}

output "state_bucket" {
  description = "The bucket of the engines' state. It is kept when the stack is deleted."
  value       = aws_cloudformation_stack.pool.outputs["StateBucket"]
}

output "status_url" {
  description = "Where tasks report, in modes nat and public."
  value       = aws_cloudformation_stack.pool.outputs["StatusUrl"]
}

output "task_role_arn" {
  description = "The role of tasks, which the roles of workspaces trust."
  value       = aws_cloudformation_stack.pool.outputs["TaskRoleArn"]
}

output "task_security_group_id" {
  description = "The security group of tasks."
  value       = aws_cloudformation_stack.pool.outputs["TaskSecurityGroupId"]
}

output "ticket_keys_secret" {
  description = "The secret for the keys of tickets."
  value       = aws_cloudformation_stack.pool.outputs["TicketKeysSecret"]
}

output "wake_target" {
  description = "The function that the control plane wakes (dayfly pool update NAME --wake-target)."
  value       = aws_cloudformation_stack.pool.outputs["WakeTarget"]
}

output "jobs_queue" {
  description = "The queue of launches."
  value       = aws_cloudformation_stack.pool.outputs["JobsQueue"]
}

output "reports_queue" {
  description = "The queue of results that the control plane could not accept yet."
  value       = aws_cloudformation_stack.pool.outputs["ReportsQueue"]
}

output "endpoint_security_group_id" {
  description = "The security group of the stack's endpoints; none in modes nat and public."
  value       = aws_cloudformation_stack.pool.outputs["StackEndpointSecurityGroupId"]
}

output "s3_prefix_list_id" {
  description = "The prefix list of S3 that tasks may reach; none in modes nat and public."
  value       = aws_cloudformation_stack.pool.outputs["TaskS3PrefixListId"]
}
