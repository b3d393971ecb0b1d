package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// deviceCode is the answer of a device endpoint.
type deviceCode struct {
	Device   string `json:"device_code"`
	User     string `json:"user_code"`
	Address  string `json:"verification_uri"`
	Whole    string `json:"verification_uri_complete"`
	Expires  int    `json:"expires_in"`
	Interval int    `json:"interval"`
}

// Device logs in with a browser of another machine: the person types a code there (RFC 8628).
func Device(ctx context.Context, cfg Config) (redact.String, error) {
	login, err := cfg.begin(ctx)
	if err != nil {
		return redact.String{}, err
	}
	code, err := cfg.requestCode(ctx, login)
	if err != nil {
		return redact.String{}, err
	}
	cfg.Say("log in at this address, in any browser:\n\n  %s\n\nand enter this code there, if it asks for one: %s\n", cmp.Or(code.Whole, code.Address), code.User)

	lives := Patience
	if code.Expires > 0 {
		lives = min(lives, time.Duration(code.Expires)*time.Second)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lives, fmt.Errorf("nobody entered the code within %s", lives))
	defer cancel()
	return cfg.pollToken(ctx, login, code)
}

// requestCode gets the code that the person enters.
func (cfg *Config) requestCode(ctx context.Context, login *oidc.Login) (code deviceCode, err error) {
	endpoint := login.DeviceEndpoint()
	if endpoint == "" {
		return code, fmt.Errorf("%s knows no login by device code: log in without --device", cfg.Issuer)
	}
	if err := private("the device endpoint of "+cfg.Issuer, endpoint); err != nil {
		return code, err
	}
	if err := login.Post(ctx, endpoint, url.Values{"client_id": {cfg.ClientID}, "scope": {login.Scope()}}, &code); err != nil {
		return code, fmt.Errorf("ask %s for a code: %w", cfg.Issuer, err)
	}
	if code.Device == "" || code.User == "" || code.Address == "" {
		return code, fmt.Errorf("%s gave no code", cfg.Issuer)
	}
	return code, nil
}

// pollToken asks for the token until the person has entered the code.
func (cfg *Config) pollToken(ctx context.Context, login *oidc.Login, code deviceCode) (redact.String, error) {
	pause := devicePause
	if code.Interval > 0 {
		pause = time.Duration(code.Interval) * time.Second
	}
	for {
		if err := cfg.Wait(ctx, pause); err != nil {
			return redact.String{}, context.Cause(ctx)
		}
		got, err := login.Token(ctx, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {code.Device}})
		said, refused := errors.AsType[*oidc.Refusal](err)
		switch {
		case err == nil:
			return login.Take(got, "")
		case refused && said.Code == "authorization_pending":
		case refused && said.Code == "slow_down":
			pause += devicePause
		case refused && said.Code == "expired_token":
			return redact.String{}, errors.New("nobody entered the code in time: start again")
		case refused:
			return redact.String{}, err
		case ctx.Err() != nil:
			return redact.String{}, context.Cause(ctx)
		default: // the issuer did not answer
			pause = min(2*pause, time.Minute)
		}
	}
}
