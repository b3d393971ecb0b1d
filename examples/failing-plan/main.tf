# A plan that cannot succeed, to show how the reason reaches the reader.
variable "environment" {
  type    = string
  default = "prodd"

  validation {
    condition     = contains(["dev", "staging", "prod"], var.environment)
    error_message = "The environment must be dev, staging or prod."
  }
}

resource "terraform_data" "never" {
  input = var.environment
}
