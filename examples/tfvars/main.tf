# Its inputs come from files beside it, which the engine reads by itself.
variable "region" {
  type = string
}

variable "replicas" {
  type = number
}

resource "terraform_data" "server" {
  count = var.replicas
  input = "server ${count.index} in ${var.region}"
}

output "region" {
  value = var.region
}
