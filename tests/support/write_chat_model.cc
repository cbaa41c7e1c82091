// write_chat_model FILE: the model of chat_model.h.
#include "support/chat_model.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  butter::write_chat_model(argv[1]);
  return 0;
}
