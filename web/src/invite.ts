/**
 * Puts the address of this page into the command. Behind a proxy the service may not know the address by which people
 * reach it; their browser knows the address.
 */
const command = document.querySelector('#command');
if (command !== null) command.textContent = command.textContent.replace(/https?:\/\/[^/]*/, location.origin);
