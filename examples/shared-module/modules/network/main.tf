variable "name" {
  type = string
}

variable "zones" {
  type = list(string)
}

resource "terraform_data" "subnet" {
  for_each = toset(var.zones)

  input = "${var.name}-${each.key}"
}

output "subnets" {
  value = [for s in terraform_data.subnet : s.output]
}
