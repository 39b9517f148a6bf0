import{m0 as o}from"./core-JBSLAAIS.js";var s=o.commands,t=o.isDialogOpen,m=o.isText,n=o.keyText,x=o.useCommands;export{x as a};
