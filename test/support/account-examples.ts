// What examples of accounts, tokens and invitations need to be there before.

import { EXAMPLES } from "../../edge/vision/description.ts";
import type { Preparation } from "./examples.ts";
import type { Person } from "./scripted-node.ts";
import { register } from "./vision.ts";

interface AccountParts {
  /** Of the service. */
  url: string;
  admin: Person;
  workspaceId: string;
}

const ids = (replaced: Record<string, string>): Preparation => ({
  replaced: Object.fromEntries(
    Object.entries(replaced).map(([name, id]) => [String(EXAMPLES[name]), id]),
  ),
});

/** Preparations by operation. */
export function accountExamples(
  parts: () => AccountParts,
): Record<string, () => Promise<Preparation>> {
  const newcomer = () => register(parts().url);
  const asNewcomer = async () => ({ secret: (await newcomer()).tokens.access_token });
  const invited = () => {
    const { admin, workspaceId } = parts();
    const body = { workspace_id: workspaceId };
    return admin.ok<{ invitation_id: string; code: string }>("POST", "/admin/invitations", body);
  };
  const withInvitation = async () => ids({ invitation_id: (await invited()).invitation_id });
  const withToken = async () => {
    const body = { name: EXAMPLES["makeApiToken.name"], role: "annotator" };
    const { token_id } = await parts().admin.ok<{ token_id: string }>("POST", "/auth/tokens", body);
    return ids({ token_id });
  };
  return {
    refreshTokens: async () => ids({ refresh_token: (await newcomer()).tokens.refresh_token }),
    endSession: asNewcomer,
    changePassword: asNewcomer,
    deleteAccount: asNewcomer,
    deleteUser: async () => ids({ user_id: (await newcomer()).id }),
    resetPassword: async () => {
      const path = `/admin/users/${(await newcomer()).id}/password-reset`;
      const { code } = await parts().admin.ok<{ code: string }>("POST", path);
      return ids({ "resetPassword.code": code });
    },
    listApiTokens: withToken,
    revokeApiToken: withToken,
    listInvitations: withInvitation,
    revokeInvitation: withInvitation,
    acceptInvitation: async () => ({
      ...ids({ invitation: (await invited()).code }),
      ...(await asNewcomer()),
    }),
  };
}
